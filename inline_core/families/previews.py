"""How the latents of a model are previewed while it runs.

In this order: by the VAE itself if it is tiny, by a tiny autoencoder from models/vae_approx that
fits, by the colours learnt from earlier decodes.  A preview that fails is drawn with the colours
instead; it never ends a run.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from inline_core.devices.policy import DevicePolicy
from inline_core.errors import InlineError, ModelFileInvalid, ModelFileMissing
from inline_core.families.autoencoders.tiny_keys import tiny_shape
from inline_core.families.demand import Opened, describe
from inline_core.families.registry import FAMILIES
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.files import is_weight_folder, open_weights
from inline_core.loading.header import SAFE_SUFFIXES
from inline_core.loading.pool import ComponentPool, Lease
from inline_core.loading.stream import LoadPlan
from inline_core.loading.vae_choice import rank, said
from inline_core.sampling.colour_store import ColourStore
from inline_core.sampling.family import LatentSpace, SoundtrackSpace
from inline_core.sampling.preview import LatentColours, decoded_jpeg

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.values import Latent

Encode = Callable[["Tensor"], bytes]
Check = Callable[[], None]

# A VAE below this draws the previews itself.
SMALL_VAE_BYTES: Final = 32 * 1024 * 1024
_PICTURES: Final = 4  # axes of the latents of pictures, (n, c, h, w)
TINY_RUNTIME: Final = "inline_core.families.autoencoders.tiny"
_TELLING: Final = ("modelspec.title", "modelspec.architecture")
_log = structlog.get_logger(__name__)

_Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TinyFile:
    """A tiny autoencoder on the disk; `words` say which latents it is for, by its name."""

    name: str
    opened: Opened
    channels: int
    factor: int
    words: tuple[str, ...]


class TinyFiles:
    """The tiny autoencoders of some folders, told by content.  Any thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[_Signature, TinyFile | None]] = {}

    def fitting(self, space: LatentSpace) -> TinyFile | None:
        """The one to use for latents of a space, or None.

        Shapes decide what fits; where several do, those come first whose name says the space, and
        those last whose name says another one.
        """
        found = [
            file
            for file in self._files()
            if (file.channels, file.factor) == (space.channels, space.factor)
        ]
        return min(found, key=lambda file: (rank(file.words, space.words), file.name), default=None)

    def _files(self) -> list[TinyFile]:
        with self._lock:
            seen: dict[Path, tuple[_Signature, TinyFile | None]] = {}
            for path in self._paths():
                signature = _signature(path)
                before = self._known.get(path)
                same = before is not None and before[0] == signature
                seen[path] = before if before and same else (signature, _identified(path))
            self._known = seen
            return [file for _, file in seen.values() if file is not None]

    def _paths(self) -> Iterator[Path]:
        for folder in self._folders:
            try:
                entries = sorted(folder.iterdir())
            except OSError:
                continue
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.suffix.lower() in SAFE_SUFFIXES or _is_component(entry):
                    yield entry


class Previews:
    """Makes the previews of jobs.

    `start` and `learn` are called on the device's threads; what `start` gives runs on another one.
    """

    def __init__(
        self,
        catalog: Catalog,
        pool: ComponentPool,
        policy: DevicePolicy,
        *,
        store: Path | None = None,
        tiny: Sequence[Path] = (),
    ) -> None:
        """`store` is where learnt colours are kept, `tiny` are folders of tiny autoencoders."""
        self._catalog = catalog
        self._pool = pool
        self._policy = policy
        self._colours = ColourStore(store)
        self._tiny = TinyFiles(tiny)

    def learn(self, vae: ComponentRef, latents: Tensor, pixels: NDArray[np.uint8]) -> None:
        """Improve a VAE's preview colours from a picture: (1, c, h, w) and (H, W, 3 or 4)."""
        import torch

        if self._catalog.identity(vae).size_bytes < SMALL_VAE_BYTES:
            return
        picture = torch.from_numpy(pixels[..., :3]).permute(2, 0, 1)[None]  # (1, 3, H, W)
        if latents.ndim > _PICTURES:
            latents = latents[:, :, 0]  # (1, c, h, w)
        colours = self._colours.of(vae.stamp, latents.shape[1])
        colours.learn(latents, picture.float() / 127.5 - 1)
        self._colours.keep(vae.stamp)

    def start(
        self,
        model: ComponentRef,
        space: LatentSpace,
        lease_vae: Callable[[ComponentRef], Lease[Any]],
        check: Check,
        warn: Callable[[str], None],
    ) -> tuple[Encode | None, Callable[[], None]]:
        """How latents of `model` are previewed, and what to call when the job is over.

        Sounds are not (None).  `warn` may be called later too, from the thread that draws.
        Raises: RunCancelled.
        """
        if space.is_sound:
            return None, _nothing
        try:
            vae = self._catalog.companion(Role.VAE, model)
            small = self._catalog.identity(vae).size_bytes < SMALL_VAE_BYTES
        except (ModelFileMissing, ModelFileInvalid):
            return LatentColours(space.channels).encode, _nothing
        colours = self._colours.of(vae.stamp, space.channels)
        file = None if small else self._tiny.fitting(space)
        if not small and file is None:
            return colours.encode, _nothing
        name = f"vae_approx/{file.name}" if file is not None else vae.name
        try:
            lease = self._lease(file, check) if file is not None else lease_vae(vae)
        except Exception as error:  # noqa: BLE001 - a preview never ends a run
            _tell_failure(warn, name, error)
            return colours.encode, _nothing
        better = (
            lease.value.jpeg
            if file is not None
            else functools.partial(decoded_jpeg, lease.value.decode)
        )
        failed = functools.partial(_tell_failure, warn, name)
        return careful(better, colours.encode, failed), lease.release

    def _lease(self, file: TinyFile, check: Check) -> Lease[Any]:
        opened = file.opened
        placement = self._policy.place_vae(opened.weights)
        plan = LoadPlan(opened.files, opened.identity, placement, file.name, check)
        key = (opened.files.path, opened.files.stamp, placement.key, "tiny")
        size = self._policy.size_of(placement, opened.weights)
        runtime = importlib.import_module(TINY_RUNTIME)
        return self._pool.lease(key, file.name, size, lambda: runtime.load_tiny(plan))


def of_video(encode: Encode, space: LatentSpace, latent: Latent) -> Encode:
    """The same for latents that are a video and its sound: only the video is drawn."""
    if not isinstance(space, SoundtrackSpace):
        return encode
    return lambda row: encode(space.split(row[None], latent)[0][0])  # (c, t, h, w)


def careful(better: Encode, fallback: Encode, failed: Callable[[Exception], None]) -> Encode:
    """Draw with `better` until it fails once, then with `fallback`; video always with that."""
    broken = threading.Event()

    def encode(latents: Tensor) -> bytes:
        if broken.is_set() or latents.ndim > 3:  # noqa: PLR2004 - (c, h, w)
            return fallback(latents)
        try:
            return better(latents)
        except Exception as error:  # noqa: BLE001 - a preview never ends a run
            if not broken.is_set():
                broken.set()
                failed(error)
            return fallback(latents)

    return encode


def _tell_failure(warn: Callable[[str], None], name: str, error: Exception) -> None:
    why = error.message if isinstance(error, InlineError) else f"{type(error).__name__}: {error}"
    _log.warning("previews are drawn in another way", name=name, why=why)
    warn(f"{name} cannot be used for previews ({why}): they are rougher")


def _nothing() -> None:
    pass


def _identified(path: Path) -> TinyFile | None:
    """What a file or folder is; None if it is no tiny autoencoder or cannot be read."""
    try:
        files = open_weights(path)
    except InlineError as error:
        _log.warning("a file of vae_approx cannot be read", name=path.name, why=error.message)
        return None
    opened = describe(files)
    shape = tiny_shape(files.tensors)
    if shape is None:
        return None
    told = [header.metadata.get(key, "") for header in files.headers for key in _TELLING]
    kinds = [family.space.words for family in FAMILIES.values()]
    words = said(" ".join((path.name, *told)), kinds)
    return TinyFile(path.name, opened, shape.latent_channels, shape.factor, words)


def _is_component(folder: Path) -> bool:
    try:
        return folder.is_dir() and is_weight_folder({entry.name for entry in folder.iterdir()})
    except OSError:
        return False


def _signature(path: Path) -> _Signature:
    """Name, size and time of a file, or of all files of a folder."""
    try:
        parts = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [(part.name, part.stat()) for part in parts]
    except OSError:
        return ()
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in stats)
