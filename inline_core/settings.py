"""Every setting of the server, read from `INLINE_*` environment variables and launcher flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MIB = 1024 * 1024


def _split_paths(value: object) -> object:
    if isinstance(value, str):
        return [Path(part) for part in value.split(os.pathsep) if part.strip()]
    return value


class Settings(BaseSettings):
    """All settings, immutable once read.  Each field is one `INLINE_<NAME>` variable."""

    model_config = SettingsConfigDict(env_prefix="INLINE_", frozen=True, extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8848, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    root_path: str = Field("", description="URL prefix when served below a path by a proxy.")
    data_dir: Path = Field(Path(".inline"), description="Database, takes, assets, logs, lock file.")
    input_dir: Path | None = Field(
        None, description="Files that workflows read by name; unset: `input` in the data folder."
    )
    models_dir: Path = Field(Path("models"), description="Writable models folder.")
    extra_models_dirs: Annotated[list[Path], NoDecode] = Field(
        default_factory=list, description="More models folders, read-only (path-list syntax)."
    )
    demo_model: bool = Field(True, description="Offer the small bundled demo model.")
    frontend_root: Path | None = Field(None, description="A built web front end to serve at /.")
    comfyui_api: bool = Field(True, description="Serve the routes that clients of ComfyUI use.")
    log_level: str = Field("info", description="debug, info, warning or error.")
    log_json: bool = Field(False, description="Write logs as JSON lines.")

    token: str | None = Field(None, description="Access token; made up when listening wider.")
    no_auth: bool = Field(False, description="Listen beyond loopback without a token.")
    allowed_hosts: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Extra Host names accepted (comma separated)."
    )
    allowed_origins: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Extra browser origins accepted (comma separated)."
    )
    allowed_roots: Annotated[list[Path], NoDecode] = Field(
        default_factory=list, description='Folders that `ref:"path"` may read (path-list syntax).'
    )

    max_queue: int = Field(10_000, ge=1, description="Most unfinished runs; then 429.")
    max_body_mb: int = Field(64, ge=1, description="Largest JSON body in MiB.")
    max_upload_mb: int = Field(1024, ge=1, description="Largest asset upload in MiB.")
    max_pixels: int = Field(100_000_000, ge=1, description="Largest picture that is decoded.")
    max_attempts: int = Field(2, ge=1, description="Starts of one run before `interrupted`.")
    walkers: int = Field(8, ge=1, le=64, description="Runs walked at the same time.")
    max_batch: int = Field(8, ge=1, description="Most jobs stepped together by the sampler.")
    start_paused: bool = Field(False, description="Start with the queue paused.")
    keep_runs: int = Field(0, ge=0, description="Keep this many finished runs; 0 keeps all.")
    keep_days: float = Field(0, ge=0, description="Keep finished runs this many days; 0: always.")
    cache_mb: int = Field(512, ge=0, description="Memory for values between nodes, in MiB.")
    metadata: bool = Field(True, description="Write provenance into the files of takes.")
    audio_format: Literal["wav", "wav-float", "flac"] = Field(
        "wav", description="Files of audio takes: 16-bit wav, float wav, or 16-bit flac."
    )

    profile: Literal["auto", "gpu-max", "lowvram", "cpu"] = Field(
        "auto", description="Memory profile; auto picks from the device."
    )
    vram_budget: int | None = Field(
        None, ge=1, description="Cap of memory for models and their work on the device, in MiB."
    )
    smart_memory: bool = Field(True, description="Keep models warm between runs while room lasts.")
    multi_gpu: bool = Field(False, description="Split work over several GPUs.")
    parallel: str = Field(
        "",
        description="How one picture is split over GPUs: auto, off, or degrees such as "
        "ulysses=2,ring=2.",
    )
    parallel_step_timeout_s: float = Field(
        300, gt=0, description="A rank without progress for this long is taken for stalled."
    )
    parallel_start_timeout_s: float = Field(
        600, gt=0, description="Longest time a group of ranks may take to start."
    )
    parallel_idle_s: float = Field(
        600, ge=0, description="Stop an idle group after this; 0: never."
    )
    parallel_hosts: int = Field(1, ge=1, le=64, description="Hosts that one group runs on.")
    parallel_address: str = Field("", description="HOST:PORT where the ranks of other hosts meet.")
    parallel_key: str | None = Field(None, description="Shared secret of the hosts.")
    ray_address: str | None = Field(
        None, description="A Ray cluster that whole jobs are sent to; `local` starts one."
    )
    overlap_on_cpu: bool = Field(
        False, description="Load, encode and decode beside denoising on a CPU too (slower there)."
    )
    threads: int = Field(0, ge=0, description="CPU threads for torch; 0 picks the core count.")
    attention: str = Field("native", description="Attention backend of diffusers, by its name.")
    compile: bool = Field(
        False, description="Compile the blocks of models: slow at first, then faster."
    )
    warm_up: bool = Field(True, description="Import torch in the background right after start.")
    keep_resident_gb: float | None = Field(
        None, ge=0, description="Most GB of models kept loaded while unused; unset: all that fits."
    )
    idle_unload_s: float = Field(600, ge=0, description="Drop idle models after this; 0: never.")

    zimage_model: str | None = Field(None, description="Z-Image diffusion model file or folder.")
    zimage_vae: str | None = Field(None, description="Z-Image VAE file or folder.")
    zimage_text_encoder: str | None = Field(None, description="Z-Image text encoder.")

    @field_validator("extra_models_dirs", "allowed_roots", mode="before")
    @classmethod
    def _paths(cls, value: object) -> object:
        return _split_paths(value)

    @field_validator("allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value

    @property
    def database_path(self) -> Path:
        """The run database."""
        return self.data_dir / "runs.db"

    @property
    def input_folder(self) -> Path:
        """Where files lie that workflows read by name."""
        return self.input_dir or self.data_dir / "input"

    @property
    def takes_dir(self) -> Path:
        """Where take files live."""
        return self.data_dir / "takes"

    @property
    def assets_dir(self) -> Path:
        """Where uploaded assets live."""
        return self.data_dir / "assets"
