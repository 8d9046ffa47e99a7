"""FLUX.2 over the wire and against its pipeline: one click, primitives, batches, adapters, CFG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu
from PIL import Image
from transformers import Qwen3ForCausalLM

from inline_core.errors import InvalidParam
from inline_core.families.flux2.family import FLUX_2
from inline_core.families.registry import open_catalog
from inline_core.loading.component import Role
from inline_core.nodes.generate_offer import _Run
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.job import SampleJob
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.values import Latent
from inline_core.settings import Settings
from tests import tiny, tiny_flux2
from tests.backends.conftest import make_bench
from tests.backends.test_contract import together
from tests.fault_nodes import specs_with_faults
from tests.live import LiveServer, live_server
from tests.pictures import noise_picture

PROMPT = {"id": "p", "type": "input/text", "params": {"text": "a red circle"}}
SIZE = {"width": 256, "height": 320}


@pytest.fixture(scope="module")
def flux_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FLUX.2 and Z-Image side by side."""
    folder = tmp_path_factory.mktemp("flux-models")
    tiny.save_models(folder)
    return tiny_flux2.save_models(folder)


@pytest.fixture(scope="module")
def flux_server(
    flux_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("server")
    wanted = Settings(
        data_dir=folder / "data", models_dir=flux_models, demo_model=False, threads=1, walkers=1
    )
    with live_server(wanted, specs_with_faults()) as running:
        yield running


def edge(node: str, output: str) -> dict[str, str]:
    return {"from": node, "output": output}


def one_click(
    inputs: dict[str, Any] | None = None, extra: list[dict[str, Any]] | None = None, **params: Any
) -> tuple[list[dict[str, Any]], str]:
    values = {"seed": 7, **SIZE, **params}
    wires = {"prompt": edge("p", "text"), **(inputs or {})}
    node = {"id": "m", "type": "black-forest-labs/flux-2", "params": values, "inputs": wires}
    return [PROMPT, *(extra or []), node], "m"


def primitives(
    latent: dict[str, Any] | None = None,
    batch: int = 1,
    guidance: float | None = None,
    **sample: Any,
) -> tuple[list[dict[str, Any]], str]:
    def encoded(node: str, text: str) -> dict[str, Any]:
        wires = {"text_encoder": edge("encoder", "text_encoder"), "prompt": edge(text, "text")}
        return {"id": node, "type": "encode/text", "inputs": wires}

    def load(node: str, kind: str, file: str) -> dict[str, Any]:
        return {"id": node, "type": f"load/{kind}", "params": {"file": file}}

    nodes = [
        PROMPT,
        {"id": "n", "type": "input/text", "params": {"text": ""}},
        load("model", "diffusion-model", "klein.safetensors"),
        load("vae", "vae", "flux2-vae.safetensors"),
        load("encoder", "text-encoder", "qwen-f2"),
        encoded("c", "p"),
        encoded("nc", "n"),
        latent or {"id": "l", "type": "latent/empty", "params": {**SIZE, "batch": batch}},
    ]
    positive = edge("c", "conditioning")
    if guidance is not None:
        wired = {"conditioning": positive}
        told = {"guidance": guidance}
        nodes.append({"id": "g", "type": "conditioning/guidance", "params": told, "inputs": wired})
        positive = edge("g", "conditioning")
    wires = {
        "model": edge("model", "model"),
        "positive": positive,
        "negative": edge("nc", "conditioning"),
        "latent": edge("l", "latent"),
    }
    params = {"steps": 4, "cfg": 1.0, "seed": 7, **sample}
    nodes.append({"id": "s", "type": "sample", "params": params, "inputs": wires})
    ends = {"vae": edge("vae", "vae"), "latent": edge("s", "latent")}
    nodes.append({"id": "d", "type": "vae/decode", "inputs": ends})
    return nodes, "d"


def run(server: LiveServer, graph: tuple[list[dict[str, Any]], str], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.submit(*graph, wait=50, **more).json()
    assert found["status"] == "done", found["error"]
    return found


def refused(server: LiveServer, graph: tuple[list[dict[str, Any]], str]) -> dict[str, Any]:
    found: dict[str, Any] = server.submit(*graph, wait=50).json()
    assert found["status"] == "error"
    error: dict[str, Any] = found["error"]
    return error


def pixels(server: LiveServer, take: dict[str, Any]) -> Any:
    data = server.http.get(f"/v1/takes/{take['id']}/bytes").content
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture)


def pipeline_scheduler() -> Any:
    """As the published scheduler_config.json has it."""
    return FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, shift=3.0, base_shift=0.5, max_shift=1.15
    )


def pipeline(*, distilled: bool) -> Any:
    """diffusers' own pipeline on the same weights."""
    inner = tiny_flux2.text_encoder()
    encoder = Qwen3ForCausalLM(inner.config)
    encoder.model.load_state_dict(inner.state_dict())
    pipe = Flux2KleinPipeline(
        scheduler=pipeline_scheduler(),
        vae=tiny_flux2.vae(),
        text_encoder=encoder.eval(),
        tokenizer=tiny_flux2.tokenizer(),
        transformer=tiny_flux2.transformer(),
        is_distilled=distilled,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize(("variant", "steps", "cfg"), [("", 4, 1.0), ("klein-4b-base", 5, 4.0)])
def test_one_click_primitives_and_the_pipeline_agree(
    flux_server: LiveServer, variant: str, steps: int, cfg: float
) -> None:
    asked = 0 if variant == "" else steps
    one = run(flux_server, one_click(variant=variant, steps=asked))
    two = run(flux_server, primitives(steps=steps, cfg=cfg))
    first, second = (pixels(flux_server, found["takes"][0]) for found in (one, two))
    assert first.shape == (320, 256, 3)
    assert np.array_equal(first, second)
    theirs = pipeline(distilled=not variant)(
        prompt="a red circle",
        width=256,
        height=320,
        num_inference_steps=steps,
        guidance_scale=cfg,
        generator=torch.Generator().manual_seed(7),
    ).images[0]
    wanted = np.asarray(theirs).astype(int)
    assert wanted.std() > 10
    assert np.abs(first.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("prompt", ["a red circle", "long " * 200])
@pytest.mark.parametrize(("steps", "cfg"), [(4, 1.0), (7, 4.0)])
def test_the_latents_are_those_of_the_pipeline(steps: int, cfg: float, prompt: str) -> None:
    bench = make_bench(tiny_flux2.shared_flux2_models())
    latent = Latent(256, 320)
    job = bench.job(prompt, family="flux-2", latent=latent, steps=steps, cfg=cfg, negative="")
    ours = bench.sampler.submit(job).result(30)
    assert bench.close()
    seen: dict[str, Any] = {}

    def keep(pipe: Any, _: int, __: Any, values: dict[str, Any]) -> dict[str, Any]:
        seen["latents"], seen["sigmas"] = values["latents"], pipe.scheduler.sigmas
        return values

    pipeline(distilled=False)(
        prompt=prompt,
        width=256,
        height=320,
        num_inference_steps=steps,
        guidance_scale=cfg,
        generator=torch.Generator().manual_seed(7),
        callback_on_step_end=keep,
        output_type="latent",
    )
    sigmas = torch.tensor(ours.provenance["sigmas"])
    assert (sigmas - seen["sigmas"]).abs().max() <= 2e-5
    wanted = seen["latents"][0].T.reshape(1, 128, 20, 16)
    assert wanted.std() > 0.3
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("steps", [1, 3, 4, 6, 7, 20, 28, 50, 300])
@pytest.mark.parametrize("size", [(256, 256), (1024, 1024), (1536, 1024)])
def test_the_simple_schedule_is_that_of_the_pipeline(steps: int, size: tuple[int, int]) -> None:
    scheduler: Any = pipeline_scheduler()
    tokens = size[0] * size[1] // 256
    times = np.linspace(1.0, 1 / steps, steps)
    scheduler.set_timesteps(sigmas=times, mu=compute_empirical_mu(tokens, steps))
    ours = torch.tensor(sigmas_for("simple", steps, FLUX_2.table(ScheduleFor("", *size, steps))))
    assert (ours - scheduler.sigmas).abs().max() <= 2e-5


def test_same_seed_same_bytes_and_batches(flux_server: LiveServer) -> None:
    first, again = (run(flux_server, one_click(), force=True) for _ in range(2))
    assert first["takes"][0]["hash"] == again["takes"][0]["hash"]
    assert run(flux_server, one_click(seed=8))["takes"][0]["hash"] != first["takes"][0]["hash"]
    batch = run(flux_server, primitives(batch=2))
    assert [take["params"]["seed"] for take in batch["takes"]] == [7, 8]
    for index, take in enumerate(batch["takes"]):
        alone = run(flux_server, primitives(seed=7 + index))
        difference = pixels(flux_server, take).astype(int) - pixels(flux_server, alone["takes"][0])
        assert np.abs(difference).max() <= 1


def test_the_variant_decides_what_is_not_said(flux_server: LiveServer) -> None:
    params: dict[str, Any] = {"negative_prompt": "blurry", "width": 280}
    plain = run(flux_server, one_click(**params))["takes"][0]
    assert plain["params"]["width"] == 272
    assert plain["params"]["model"] == "klein.safetensors"
    distilled = run(flux_server, one_click(steps=4, guidance=1.0, **params))["takes"][0]
    assert np.array_equal(pixels(flux_server, plain), pixels(flux_server, distilled))
    base = run(flux_server, one_click(variant="klein-4b-base", steps=3))["takes"][0]
    guided = run(flux_server, one_click(steps=3, guidance=4.0))["takes"][0]
    assert np.array_equal(pixels(flux_server, base), pixels(flux_server, guided))


def test_an_adapter_changes_the_picture(flux_server: LiveServer, flux_models: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, module, rows in (
        ("bfl", "diffusion_model.double_blocks.0.img_attn.qkv", 96),
        ("peft", "transformer.single_transformer_blocks.1.attn.to_out", 32),
    ):
        columns = 32 if name == "bfl" else 96
        down = torch.randn((2, columns), generator=generator)
        up = torch.randn((rows, 2), generator=generator)
        keys = {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}
        tiny.save(keys, flux_models / f"loras/{name}.safetensors")
    flux_server.services.catalog.refresh()
    hashes = {run(flux_server, one_click())["takes"][0]["hash"]}
    for name in ("bfl", "peft"):
        lora = {"id": "lora", "type": "load/lora", "params": {"file": f"{name}.safetensors"}}
        take = run(flux_server, one_click({"lora": edge("lora", "lora")}, [lora]))["takes"][0]
        assert take["params"]["loras"] == [{"file": f"{name}.safetensors", "strength": 1.0}]
        hashes.add(take["hash"])
    assert len(hashes) == 3


def test_image_to_image(flux_server: LiveServer) -> None:
    shown = source(flux_server, "i", Image.new("RGB", (256, 320), (200, 30, 30)))
    wires = {"vae": edge("vae", "vae"), "image": edge("i", "image")}
    latent = {"id": "l", "type": "vae/encode", "inputs": wires}
    found = {}
    for denoise in (0.02, 0.9):
        nodes, target = primitives(latent, denoise=denoise)
        found[denoise] = pixels(
            flux_server, run(flux_server, ([shown, *nodes], target))["takes"][0]
        )
    back = [shown, *primitives(latent)[0][3:4], latent]
    ends = {"vae": edge("vae", "vae"), "latent": edge("l", "latent")}
    back.append({"id": "d", "type": "vae/decode", "inputs": ends})
    original = pixels(flux_server, run(flux_server, (back, "d"))["takes"][0]).astype(int)
    little, much = (np.abs(found[key] - original).mean() for key in (0.02, 0.9))
    assert 0 < 2 * little < much


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"variant": "dev"}, "mistral3, hidden_size 16"),
        ({"model": "z.safetensors"}, "FLUX.2 is needed here"),
        ({"vae": "ae.safetensors"}, "a VAE for FLUX.2 is needed here"),
        ({"text_encoder": "qwen"}, "hidden size 64, the model needs 16"),
    ],
)
def test_what_cannot_be_is_refused(
    flux_server: LiveServer, params: dict[str, Any], message: str
) -> None:
    assert message in refused(flux_server, one_click(**params))["message"]


def test_a_wired_model_of_another_family_is_refused(flux_server: LiveServer) -> None:
    other = {"id": "z", "type": "load/diffusion-model", "params": {"file": "z.safetensors"}}
    error = refused(flux_server, one_click({"model": edge("z", "model")}, [other]))
    assert error["message"] == "z.safetensors is z-image; the node FLUX.2 needs FLUX.2"


def source(server: LiveServer, node: str, picture: Any) -> dict[str, Any]:
    """An input node with an uploaded picture."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    asset = server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
    return {"id": node, "type": "input/image", "params": {"asset": {"ref": "asset", "id": asset}}}


@pytest.mark.parametrize(("variant", "cfg"), [("", 1.0), ("klein-4b-base", 4.0)])
def test_reference_images_are_looked_at_as_in_the_pipeline(
    flux_server: LiveServer, variant: str, cfg: float
) -> None:
    pictures = [noise_picture(1, (100, 70)), noise_picture(2, (1400, 900))]
    nodes = [source(flux_server, f"i{index}", one) for index, one in enumerate(pictures)]
    wires = {"image": [edge("i0", "image"), edge("i1", "image")]}
    take = run(flux_server, one_click(wires, nodes, variant=variant, steps=2))["takes"][0]
    first = pixels(flux_server, take)
    plain = run(flux_server, one_click(variant=variant, steps=2))["takes"][0]
    assert not np.array_equal(first, pixels(flux_server, plain))
    theirs = pipeline(distilled=not variant)(
        image=pictures,
        prompt="a red circle",
        width=256,
        height=320,
        num_inference_steps=2,
        guidance_scale=cfg,
        generator=torch.Generator().manual_seed(7),
    ).images[0]
    assert np.abs(first.astype(int) - np.asarray(theirs).astype(int)).max() <= 1


def test_a_reference_by_primitives_is_that_of_one_click(flux_server: LiveServer) -> None:
    shown = source(flux_server, "i", noise_picture(3, (96, 64)))
    one = run(flux_server, one_click({"image": edge("i", "image")}, [shown]))["takes"][0]
    nodes, target = primitives()
    wires = {"vae": edge("vae", "vae"), "image": edge("i", "image")}
    nodes += [
        shown,
        {"id": "e", "type": "vae/encode", "inputs": wires},
        {
            "id": "r",
            "type": "conditioning/reference",
            "inputs": {"conditioning": edge("c", "conditioning"), "latent": edge("e", "latent")},
        },
    ]
    sampling = next(node for node in nodes if node["id"] == "s")
    sampling["inputs"]["positive"] = edge("r", "conditioning")
    two = run(flux_server, (nodes, target))["takes"][0]
    assert np.array_equal(pixels(flux_server, one), pixels(flux_server, two))
    tall = source(flux_server, "i", noise_picture(4, (600, 70)))
    error = refused(flux_server, one_click({"image": edge("i", "image")}, [tall]))
    assert "600x70 is too small or too long" in error["message"]


def test_references_of_one_size_share_passes_and_others_do_not() -> None:
    bench = make_bench(tiny_flux2.shared_flux2_models())
    generator = torch.Generator().manual_seed(5)

    def shown(side: int) -> Latent:
        samples = torch.randn((1, 128, side // 16, side // 16), generator=generator)
        return Latent(side, side, samples=samples, space="flux2")

    def job(*references: Latent, **changes: Any) -> SampleJob:
        made = bench.job("a", family="flux-2", **changes)
        return replace(made, positive=replace(made.positive, references=references))

    jobs = [job(shown(64), seed=1), job(shown(64), seed=2, cfg=2.0), job(shown(96)), job()]
    alone = [bench.latents(one) for one in jobs]
    together_ = [future.result(30) for future in together(bench, jobs)]
    for found, wanted in zip(together_, alone, strict=True):
        assert torch.allclose(found.latent.samples, wanted, atol=1e-4)
    assert [found.provenance["batch"] for found in together_] == [2, 2, 1, 1]
    assert together_[0].provenance["references"] == [[64, 64]]
    wrong = job(replace(shown(64), space="flux"))
    with pytest.raises(InvalidParam, match=r"in latent space flux; FLUX\.2 needs flux2"):
        bench.sampler.submit(wrong).result(30)
    assert bench.close()
    other = make_bench(tiny.shared_models())
    made = other.job()
    seen = replace(made, positive=replace(made.positive, references=(shown(64),)))
    with pytest.raises(InvalidParam, match="Z-Image does not look at reference images"):
        other.sampler.submit(seen).result(30)
    assert other.close()


def test_structure_maps_are_refused(flux_server: LiveServer) -> None:
    shown = source(flux_server, "i", noise_picture(3, (64, 64)))
    error = refused(flux_server, one_click({"control_image": edge("i", "image")}, [shown]))
    assert "Structure map is not available" in error["message"]


def test_a_guidance_input_is_for_models_that_have_one(
    flux_server: LiveServer, flux_models: Path
) -> None:
    error = refused(flux_server, primitives(guidance=2.0))
    assert "does not take its guidance as an input" in error["message"]
    state = tiny_flux2.transformer(guidance_embeds=True).state_dict()
    file = tiny.save(
        tiny_flux2.original_keys(state), flux_models / "diffusion_models/guided.safetensors"
    )
    flux_server.services.catalog.refresh()
    found = {}
    for guidance in (None, 1.0, 4.0):
        nodes, target = primitives(guidance=guidance)
        nodes[2] = {**nodes[2], "params": {"file": file.name}}
        found[guidance] = pixels(flux_server, run(flux_server, (nodes, target))["takes"][0])
    # 4.0 is what such a model is told when nobody says anything.
    assert np.array_equal(found[None], found[4.0])
    assert not np.array_equal(found[None], found[1.0])
    file.unlink()
    flux_server.services.catalog.refresh()


def test_empty_pickers_choose_what_belongs_together(flux_models: Path, tmp_path: Path) -> None:
    catalog = open_catalog(Settings(models_dir=flux_models, demo_model=False))
    for family, model, vae, encoder in (
        ("z-image", "z.safetensors", "ae.safetensors", "qwen"),
        ("flux-2", "klein.safetensors", "flux2-vae.safetensors", "qwen-f2"),
    ):
        found = catalog.find(Role.DIFFUSION_MODEL, "", family=family)
        companions = catalog.companions(found)
        assert [part.name for part in (found, *companions)] == [model, vae, encoder]
        for role, name in ((Role.VAE, vae), (Role.TEXT_ENCODER, encoder)):
            assert catalog.find(role, "", family=family).name == name
    assert catalog.find(Role.TEXT_ENCODER, "").name == "qwen"
    # Without a diffusion model of Z-Image its encoder is not meant.
    tiny.save_text_encoder_folder(tmp_path / "text_encoders/a-qwen")
    only = open_catalog(Settings(models_dir=tiny_flux2.save_models(tmp_path), demo_model=False))
    assert only.find(Role.TEXT_ENCODER, "").name == "qwen-f2"
    assert only.find(Role.VAE, "").name == "flux2-vae.safetensors"


def test_a_variant_picks_its_model(tmp_path: Path) -> None:
    def real(heads: int, double: int, single: int, features: int) -> dict[str, torch.Tensor]:
        return tiny_flux2.original_keys(
            tiny_flux2.transformer(
                num_attention_heads=heads,
                attention_head_dim=4,
                axes_dims_rope=(0, 0, 2, 2),
                num_layers=double,
                num_single_layers=single,
                joint_attention_dim=3 * features,
            ).state_dict()
        )

    folder = tmp_path / "diffusion_models"
    tiny.save(real(32, 8, 24, 64), folder / "a.safetensors")
    tiny.save(real(24, 5, 20, 32), folder / "b.safetensors")
    catalog = open_catalog(Settings(models_dir=tmp_path, demo_model=False))

    def found(variant: str) -> str:
        return catalog.find(Role.DIFFUSION_MODEL, "", family="flux-2", variant=variant).name

    assert [found("klein-4b"), found("klein-9b"), found("dev")] == ["b.safetensors"] + [
        "a.safetensors"
    ] * 2
    small = catalog.find(Role.DIFFUSION_MODEL, "b.safetensors")
    assert catalog.defaults_of(small)["steps"] == 4
    with pytest.raises(InvalidParam, match=r"b.safetensors is FLUX.2 klein-4b, not klein-9b-base"):
        _Run(FLUX_2, FLUX_2.offers[0])._of_variant(small, "klein-9b-base")
