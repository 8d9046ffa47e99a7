"""How a node is written: a typed function, and what it may ask of the engine."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from inline_core.errors import InlineError
from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec, Option, ParamKind, ParamSpec, PortSpec, Widget
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.media.values import Clip, Image, ImageBatch, Mask, MediaFile, Waveform
from inline_core.sampling.job import SampleJob, SampleResult
from inline_core.sampling.sigmas.values import Sigmas
from inline_core.sampling.text_request import TextRequest
from inline_core.sampling.values import Conditioning, Latent

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Render(Protocol):
    """The torch side, as nodes see it.  Every call blocks its walker until the device did it."""

    def encode_text(self, conditioning: Conditioning, ctx: NodeContext) -> None:
        """Encode a prompt ahead of its use, if the family that will read it is known."""

    def sample(self, job: SampleJob, ctx: NodeContext) -> SampleResult:
        """Denoise one job; batches with jobs of other runs."""

    def decode(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Image, ...]:
        """Turn latents into pictures on the CPU."""

    def encode_image(self, vae: ComponentRef, image: Image, ctx: NodeContext) -> Latent:
        """Turn a picture into latents."""

    def encode_pixels(self, vae: ComponentRef, pixels: NDArray[Any], ctx: NodeContext) -> Latent:
        """Turn (height, width, 3) or frames (n, height, width, 3) into latents.

        uint8, or float32 in 0..1.
        """

    def encode_all(self, vae: ComponentRef, images: Sequence[Image], ctx: NodeContext) -> Latent:
        """Turn pictures into a batch of latents, or, with a VAE of videos, into one video.

        What is beyond the sizes that the VAE can encode is cut off.
        """

    def on_latents(self, change: str, ctx: NodeContext, *values: Any) -> Any:
        """Run a function of `sampling.latent_tensors`, by name, where torch lives."""

    def write_text(
        self, encoder: ComponentRef, request: TextRequest, ctx: NodeContext
    ) -> tuple[str, str]:
        """What a language model answers, and what it thought before."""

    def upscale_latent(
        self, upscaler: ComponentRef, vae: ComponentRef, latent: Latent, ctx: NodeContext
    ) -> Latent:
        """Latents of a video twice as wide and high; its sound stays as it is."""

    def decode_clips(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Clip, ...]:
        """Turn latents of videos into videos without sound, on the CPU."""

    def decode_sounds(
        self, vae: ComponentRef, latent: Latent, ctx: NodeContext
    ) -> tuple[Waveform, ...]:
        """Turn latents of sounds into sounds, on the CPU."""

    def upscale(
        self, upscaler: ComponentRef, image: Image, ctx: NodeContext, *, tile: int, overlap: int
    ) -> Image:
        """Enlarge a picture (its alpha is left out) by what the upscaler was made for."""


class Components(Protocol):
    """The models folder, as nodes see it."""

    def find(
        self, role: Role, name: str, *, family: str | None = None, variant: str = ""
    ) -> ComponentRef:
        """The component `name` (empty: the best one for `family`), identified and checked.

        Of several that would do, one of `variant` is preferred.
        Raises: ModelFileMissing, ModelFileInvalid.
        """

    def companion(self, role: Role, model: ComponentRef) -> ComponentRef:
        """The component of another role that fits a diffusion model.

        Raises: ModelFileMissing, ModelFileInvalid.
        """

    def doubt(self, model: ComponentRef, vae: ComponentRef) -> str:
        """Why a VAE that was found may be one of another family, as a sentence, or ""."""

    def encoders_for(self, model: ComponentRef, given: ComponentRef | None = None) -> ComponentRef:
        """All text encoders that a diffusion model needs, those given among them.

        Raises: ModelFileMissing, ModelFileInvalid.
        """

    def defaults_of(self, model: ComponentRef) -> Mapping[str, Any]:
        """The usual params of a diffusion model (steps, guidance, ...), by its variant."""

    def find_lora(self, name: str, strength: float) -> LoraRef:
        """The adapter file `name`.  Raises: ModelFileMissing, ModelFileInvalid."""


class Media(Protocol):
    """Assets, takes and allowed files, as nodes see them."""

    def image(self, reference: object) -> Image:
        """The picture an asset reference names.  Raises: InvalidAsset."""

    def mask(self, reference: object) -> Mask:
        """The mask an asset reference names (alpha, else luminance).  Raises: InvalidAsset."""

    def file(self, reference: object, kind: str) -> MediaFile:
        """The video or sound an asset reference names.  Raises: InvalidAsset."""


class NodeContext(Protocol):
    """What a running node may ask for.  One per node execution; used on one walker thread."""

    run_id: str
    node_id: str
    priority: int
    render: Render
    components: Components
    media: Media

    def check_cancelled(self) -> None:
        """Raise `RunCancelled` if the run was cancelled; call it in every loop."""

    def progress(
        self,
        phase: str,
        fraction: float,
        status: str = "",
        *,
        step: int | None = None,
        step_count: int | None = None,
        eta_ms: int | None = None,
    ) -> None:
        """Say how far this node is: `fraction` in 0..1, `phase` one of the contract's phases."""

    def preview(self, encode: Callable[[], bytes]) -> None:
        """Offer a live preview; `encode` gives its bytes, and is called only if somebody looks."""

    def warn(self, message: str) -> None:
        """Attach a warning to the run and to the takes of this node."""

    def describe(self, **facts: object) -> None:
        """Add to the effective params that the takes of this node will carry."""


@dataclass(frozen=True, slots=True)
class Param:
    """Annotation of a keyword parameter; what is None is derived from the type and the name."""

    label: str | None = None
    widget: Widget | None = None
    kind: ParamKind | None = None
    min: float | None = None
    max: float | None = None
    step: float | None = None
    options: Sequence[tuple[str, str]] = ()
    options_from: str | None = None
    advanced: bool = False
    on_face: bool = False
    variant_default: str | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """Annotation of a positional parameter or of an output; names the kind and the label.

    `required` is for a port that must be wired though ports before it have defaults.
    """

    kind: PortKind | None = None
    label: str | None = None
    id: str | None = None
    required: bool | None = None


_KIND_OF_TYPE: Mapping[Any, PortKind] = types.MappingProxyType(
    {
        str: PortKind.TEXT,
        Image: PortKind.IMAGE,
        ImageBatch: PortKind.IMAGE,
        Mask: PortKind.MASK,
        Clip: PortKind.VIDEO,
        Waveform: PortKind.AUDIO,
        Conditioning: PortKind.CONDITIONING,
        Latent: PortKind.LATENT,
        Sigmas: PortKind.SIGMAS,
    }
)

NodeFunction = Callable[..., Any]
_CONTEXT = "ctx"


def node(
    type: str,  # noqa: A002 - the wire calls it `type`
    *,
    title: str,
    category: str,
    icon: str = "box",
    outputs: Sequence[Port] = (),
    output_kind: typing.Literal["image", "video", "audio", "lora"] | None = None,
    hidden: bool = False,
    family: str | None = None,
    needs: Sequence[str] = (),
    version: int = 1,
    cacheable: bool = True,
    selects: bool = False,
) -> Callable[[NodeFunction], NodeFunction]:
    """Declare a node type; the function keeps working as a plain function.

    A first parameter `ctx` is what a node may ask for; one that asks for nothing leaves it out.
    Other positional parameters are input ports, keyword-only ones are params (a trailing
    underscore keeps a param apart from a port of the same name), `outputs` names the output ports
    in the order of the returned value or tuple.  The spec is `function.node_spec`.
    Raises: TypeError for a signature it cannot read.
    """

    def declare(function: NodeFunction) -> NodeFunction:
        inputs, params = _read_signature(function)
        ports = tuple(_output_port(port) for port in outputs)
        function.node_spec = NodeSpec(  # type: ignore[attr-defined]
            type=type,
            title=title,
            category=category,
            icon=icon,
            inputs=tuple(inputs),
            outputs=ports,
            params=tuple(params),
            run=_caller(function, tuple(port.id for port in inputs), ports),
            doc=inspect.cleandoc(function.__doc__ or ""),
            version=version,
            output_kind=output_kind,
            hidden=hidden,
            family=family,
            needs=tuple(needs),
            cacheable=cacheable,
            selects=selects,
        )
        return function

    return declare


def _caller(
    function: NodeFunction, inputs: tuple[str, ...], outputs: tuple[PortSpec, ...]
) -> Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]:
    """Adapt `function([ctx,] *ports, **params)` to the uniform shape the engine calls."""
    parameters = _declared(function)
    asks = len(parameters) < len(inspect.signature(function).parameters)
    names = {
        parameter.name.rstrip("_"): parameter.name
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    unwired = {port: p.default for port, p in zip(inputs, positional, strict=True)}

    def run(ctx: Any, values: Mapping[str, Any], params: Mapping[str, Any]) -> Mapping[str, Any]:
        named = {names[key]: value for key, value in params.items()}
        wired = [values.get(port, unwired[port]) for port in inputs]
        result = function(ctx, *wired, **named) if asks else function(*wired, **named)
        if len(outputs) == 1:
            return {outputs[0].id: result}
        if not outputs:
            return {}
        return {port.id: value for port, value in zip(outputs, result, strict=True)}

    return run


def _read_signature(function: NodeFunction) -> tuple[list[PortSpec], list[ParamSpec]]:
    hints = typing.get_type_hints(function, include_extras=True)
    inputs: list[PortSpec] = []
    params: list[ParamSpec] = []
    for parameter in _declared(function):
        name, hint = parameter.name, hints[parameter.name]
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            params.append(_param(name.rstrip("_"), hint, parameter.default))
        else:
            required = parameter.default is inspect.Parameter.empty
            inputs.append(_input_port(name, hint, required=required))
    return inputs, params


def _declared(function: NodeFunction) -> list[inspect.Parameter]:
    """The parameters that are ports and params: all but the context, which a node may not need."""
    parameters = list(inspect.signature(function).parameters.values())
    return parameters[1:] if parameters and parameters[0].name == _CONTEXT else parameters


def _split(hint: Any, marker: type[Any]) -> tuple[Any, Any]:
    """Take `Annotated[T, marker(...)] | None` apart into (T, marker or None)."""
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
        hint = parts[0]
    if typing.get_origin(hint) is Annotated:
        base, *extras = typing.get_args(hint)
        found = next((extra for extra in extras if isinstance(extra, marker)), None)
        inner, _ = _split(base, marker)
        return inner, found
    return hint, None


def _input_port(name: str, hint: Any, *, required: bool) -> PortSpec:
    base, port = _split(hint, Port)
    port = port or Port()
    kind = port.kind or _KIND_OF_TYPE.get(base)
    if kind is None:
        message = f"input {name!r}: no port kind for {base!r}; annotate it with Port(kind)"
        raise TypeError(message)
    if port.required is not None:
        required = port.required
    return PortSpec(port.id or name, port.label or title_of(name), kind, required)


def _output_port(port: Port) -> PortSpec:
    if port.kind is None:
        message = "an output needs Port(kind)"
        raise TypeError(message)
    name = port.id or port.kind.value.replace("-", "_")
    return PortSpec(name, port.label or title_of(name), port.kind)


def title_of(name: str) -> str:
    """`text_encoder` -> `Text encoder`, as the labels of the contract are written."""
    words = re.sub(r"[_-]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def _param(key: str, hint: Any, default: Any) -> ParamSpec:
    base, param = _split(hint, Param)
    param = param or Param()
    options = tuple(Option(value, label) for value, label in param.options)
    widget, kind = _widget_and_kind(base, param)
    return ParamSpec(
        key=key,
        label=param.label or title_of(key),
        widget=widget,
        kind=param.kind or kind,
        default=None if default is inspect.Parameter.empty else default,
        min=param.min,
        max=param.max,
        step=param.step,
        options=options,
        options_from=param.options_from,
        integer=base is int,
        advanced=param.advanced,
        on_face=param.on_face,
        variant_default=param.variant_default,
        doc=param.doc,
    )


def _widget_and_kind(base: Any, param: Param) -> tuple[Widget, ParamKind]:
    if param.widget == "seed":
        return "seed", "seed"
    if param.options_from is not None:
        return "select", "model"
    if param.options:
        return "select", "enum"
    if base is bool:
        return "boolean", "boolean"
    if base in {int, float}:
        return "number", "number"
    if param.widget == "asset":
        return "asset", "file"
    return param.widget or "text", "text" if param.widget == "textarea" else "string"


def spec_of(function: NodeFunction) -> NodeSpec:
    """The spec that `@node` put on a function.  Raises: InlineError if it was not declared."""
    spec = getattr(function, "node_spec", None)
    if not isinstance(spec, NodeSpec):
        message = f"{function!r} is not a node"
        raise InlineError(message)
    return spec
