"""One-click nodes made from what a family offers, of the same primitives as any graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from inline_core.errors import InvalidParam
from inline_core.graph.spec import NodeSpec
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.media.values import Clip, Waveform
from inline_core.nodes.base import NodeContext
from inline_core.nodes.conditioning import inpaint
from inline_core.nodes.fitting import fitted_mask
from inline_core.nodes.load import with_adapters
from inline_core.nodes.offer_params import offer_inputs, offer_outputs, offer_params
from inline_core.nodes.offer_start import Start
from inline_core.nodes.one_click import Parts, decoded, described, parts_of
from inline_core.nodes.patches import guided_by, pair
from inline_core.nodes.sample import run_job
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import WITH_SOUND, Offer
from inline_core.sampling.patches import with_patch
from inline_core.sampling.values import Conditioning, Latent

_ENCODER_PARAMS: Final = ("text_encoder", "text_encoder_2", "text_encoder_3")


def node_of(family: ModelFamily, offer: Offer) -> NodeSpec:
    """The node type of an offer."""
    video = offer.output.startswith("video")
    return NodeSpec(
        type=offer.type,
        title=offer.title,
        category="Generate",
        icon="audio-lines" if offer.output == "audio" else "wand",
        inputs=offer_inputs(offer),
        outputs=offer_outputs(offer),
        params=offer_params(family, offer),
        run=_Run(family, offer),
        doc=_doc(family, offer),
        output_kind="video" if video else "audio" if offer.output == "audio" else "image",
        family=family.name,
        needs=("torch",),
    )


def _doc(family: ModelFamily, offer: Offer) -> str:
    what = {"image": "a picture", "video": "a video", "audio": "sound"}
    made = what.get(offer.output, "a video with its sound")
    lines = [f"Make {made} from a prompt with {family.rules.label}."]
    if "steps" not in offer.stated:
        lines.append("Steps 0 and guidance -1 take what the model is usually run with.")
    if "references" in offer.takes:
        lines.append(f"It looks at up to {offer.references} pictures.")
    if "image" in offer.takes:
        lines.append(
            "With `image` wired it starts from that picture; `strength` is how much is new."
        )
    if "inpaint" in offer.takes:
        lines.append("The masked part of `image` is made anew.")
    if "control" in offer.takes:
        lines.append("With `control_image` wired a ControlNet guides it.")
    lines.append(
        "Raises: ModelFileMissing, ModelFileInvalid, InvalidParam, NotFinite, OutOfMemory."
    )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Run:
    """Runs one offer; called by the engine with the values of ports and params."""

    family: ModelFamily
    offer: Offer

    def __call__(
        self, ctx: NodeContext, inputs: Mapping[str, Any], params: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Make one result.  Raises: InlineError."""
        _refuse_absent(self.offer, inputs, params)
        parts = self._parts(ctx, inputs, params)
        lora: Sequence[LoraRef] | None = inputs.get("lora")
        if lora:
            parts = (with_adapters(parts[0], lora), parts[1], parts[2])
        if self.offer.experts or self.offer.guiding:
            parts = (self._with_second(ctx, parts[0], params, lora), parts[1], parts[2])
        usual = {**self.offer.usual, **ctx.components.defaults_of(parts[0])}
        prompt = str(inputs["prompt"])
        positive = self._conditioning(parts, params, usual, prompt)
        ctx.render.encode_text(positive, ctx)
        start = Start(ctx, self.family, self.offer, parts, usual, inputs, params)
        positive = start.controlled(start.looking_at(positive))
        latent = start.latent(positive)
        positive = start.framed(positive, latent)
        if "inpaint" in self.offer.takes:
            image, mask = start.picture(inputs["image"]), inputs["mask"]
            fitting = fitted_mask(mask, inputs["image"], self.family.size_multiple)
            positive = inpaint(ctx, positive, parts[1], image, fitting)
        result = run_job(ctx, self._job(parts, params, usual, positive, latent, inputs)).latent
        if self.offer.output == "image":
            return {"image": decoded(ctx, parts, result, prompt, lora)}
        if self.offer.output == "audio":
            sounds: tuple[Waveform, ...] = ctx.render.decode_sounds(parts[1], result, ctx)
            described(ctx, parts, prompt, lora)
            return {"audio": sounds[0]}
        clips: tuple[Clip, ...] = ctx.render.decode_clips(parts[1], result, ctx)
        described(ctx, parts, prompt, lora)
        if self.offer.output == "video":
            return {"video": clips[0]}
        if not params.get(WITH_SOUND, True):
            return {"video": clips[0], "audio": None}
        sounds = ctx.render.decode_sounds(parts[1], result, ctx)
        return {"video": replace(clips[0], sound=sounds[0]), "audio": sounds[0]}

    def _with_second(
        self,
        ctx: NodeContext,
        model: ComponentRef,
        params: Mapping[str, Any],
        lora: Sequence[LoraRef] | None,
    ) -> ComponentRef:
        """The model, or the pair of it and the second one that is picked."""
        name = str(params.get("model_2") or "")
        if not name:
            return model
        family = self.family.name
        second = ctx.components.find(Role.DIFFUSION_MODEL, name, family=family)
        if self.offer.guiding:  # without adapters, which are made for the first
            guided: ComponentRef = guided_by(model, second)
            return guided
        second = with_adapters(second, lora or ())
        boundary = float(params.get("boundary", self.offer.boundary))
        both: ComponentRef = pair(model, second, boundary=boundary)
        return both

    def _parts(
        self, ctx: NodeContext, inputs: Mapping[str, Any], params: Mapping[str, Any]
    ) -> Parts:
        model = inputs.get("model") or self._found(ctx, params)
        if model.family != self.family.name:
            label = self.family.rules.label
            message = f"{model.name} is {model.family}; the node {self.offer.title} needs {label}"
            raise InvalidParam(message, port="model")
        model = self._of_variant(model, str(params.get("variant") or ""))
        self.family.check_variant(model)
        wired = (inputs.get("vae"), inputs.get("text_encoder"))
        encoders = [str(params.get(key) or "") for key in _ENCODER_PARAMS]
        parts = parts_of(ctx, model, wired, str(params["vae"] or ""), encoders)
        self._check_others(ctx, parts[1], sound=bool(params.get(WITH_SOUND, True)))
        return parts

    def _check_others(self, ctx: NodeContext, vae: ComponentRef, *, sound: bool) -> None:
        """Raise ModelFileMissing if a part that goes with the VAE is absent, before anything runs.

        Those that make the `sound` may be, where there shall be none.
        """
        there = {part.role for part in vae.others}
        rules = self.family.rules
        for role in rules.vae_parts:
            if role not in there and (sound or role not in rules.sound_parts):
                ctx.components.find(role, "", family=self.family.name)

    def _found(self, ctx: NodeContext, params: Mapping[str, Any]) -> ComponentRef:
        """The model that is picked, or the best one of the variant that is wanted."""
        offer = self.offer
        wanted = str(params.get("variant") or (offer.variants[0] if offer.variants else ""))
        of = next((told.of for told in offer.told if told.value == wanted), "")
        name, family = str(params["model"] or ""), self.family.name
        return ctx.components.find(Role.DIFFUSION_MODEL, name, family=family, variant=of or wanted)

    def _of_variant(self, model: ComponentRef, picked: str) -> ComponentRef:
        """The model as the variant that the user says it is.  Raises: InvalidParam."""
        offer, label = self.offer, self.family.rules.label
        if any(told.value == picked for told in offer.told):
            model = self.family.as_variant(model, picked)
        told = picked or offer.assumed
        if offer.variants and model.variant and model.variant not in (*offer.variants, told):
            message = (
                f"{model.name} is {label} {model.variant}; {offer.title} needs "
                f"{' or '.join(offer.variants)}: pick another model or another node"
            )
            raise InvalidParam(message, param="model")
        return replace(model, variant=told) if told else model

    def _conditioning(
        self, parts: Parts, params: Mapping[str, Any], usual: Mapping[str, Any], prompt: str
    ) -> Conditioning:
        chosen = {choice.key: params[choice.key] for choice in self.offer.choices}
        options = tuple(sorted({**chosen, **self.offer.options}.items()))
        guidance = None
        if self.offer.guidance_of(parts[0].variant) == "input":
            wanted = float(params["guidance"])
            found = usual.get("guidance") if wanted < 0 else wanted
            guidance = None if found is None else float(found)
        return Conditioning(prompt, parts[2], guidance=guidance, options=options)

    def _job(
        self,
        parts: Parts,
        params: Mapping[str, Any],
        usual: Mapping[str, Any],
        positive: Conditioning,
        latent: Latent,
        inputs: Mapping[str, Any],
    ) -> SampleJob:
        offer = self.offer
        key = "cfg" if offer.guidance_of(parts[0].variant) == "input" else "guidance"
        none = 0.0 if offer.guidance == "above_one" else 1.0
        wanted = float(params.get(key, none))
        cfg = float(usual.get(key, none)) if wanted < 0 else wanted
        cfg += 1.0 - none
        sigmas = offer.schedules.get(str(params.get("mode")))
        cfg = cfg if sigmas is None else 1.0
        negative = None
        if cfg > 1:
            words = str(params.get("negative_prompt") or "")
            negative = replace(positive, prompt=words)
        starts = "image" in offer.takes and inputs.get("image") is not None
        model = parts[0]
        for patch in offer.guided if cfg > 1 else ():
            model = with_patch(model, patch)
        return SampleJob(
            model=model,
            positive=positive,
            negative=negative,
            latent=latent,
            steps=_steps(offer, params, usual) if sigmas is None else len(sigmas) - 1,
            sigmas=sigmas,
            cfg=max(cfg, 1.0),
            sampler=str(params["sampler"]),
            scheduler=str(params["scheduler"]),
            seed=int(params["seed"]),
            denoise=float(params["strength"]) if starts else 1.0,
        )


def _steps(offer: Offer, params: Mapping[str, Any], usual: Mapping[str, Any]) -> int:
    steps = int(params[offer.steps_key]) or int(usual["steps"])
    return max(steps - 1, 1) if offer.counts_last else steps


def _refuse_absent(offer: Offer, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    for absent in offer.absent:
        value = inputs.get(absent.key) if absent.kind else params.get(absent.key)
        if value is None or value == "" or value is False:
            continue
        how = "clear" if absent.category else "switch off"
        how = f"{'unwire' if absent.kind else how} '{absent.key}'"
        message = f"{absent.label} is not available for {offer.title} in this release: {how}"
        if absent.kind:
            raise InvalidParam(message, port=absent.key)
        raise InvalidParam(message, param=absent.key)
