"""What an import dropped, changed or could not do: one line each, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How much a line matters for the result."""

    INFO = "info"
    """Nothing that an output depends on: notes, reroutes, interface-only values."""
    WARNING = "warning"
    """Something was guessed, filled in or left out; the result may differ."""
    ERROR = "error"
    """The workflow is wrong at this place; what depends on it cannot run."""


class Reason(StrEnum):
    """Why a line was written; stable names for programs."""

    BROKEN_JSON = "broken_json"
    NOT_FINITE = "not_finite"
    MALFORMED = "malformed"
    DUPLICATE_ID = "duplicate_id"
    NOTE = "note"
    DECORATION = "decoration"
    REROUTE = "reroute"
    PRIMITIVE = "primitive"
    SET_GET = "set_get"
    EVERYWHERE = "everywhere"
    MUTED = "muted"
    BYPASSED = "bypassed"
    SUBGRAPH = "subgraph"
    GROUP_NODE = "group_node"
    RECURSION = "recursion"
    MISSING_DEFINITION = "missing_definition"
    STALE_INPUT = "stale_input"
    LOST_LINK = "lost_link"
    MISSING_LINK = "missing_link"
    LINK_CYCLE = "link_cycle"
    GRAPH_CYCLE = "graph_cycle"
    INTERFACE_VALUE = "interface_value"
    REPLACED_VALUE = "replaced_value"
    PROMOTED_VALUE = "promoted_value"
    DEFAULT_VALUE = "default_value"
    VALUE_COUNT = "value_count"
    UNNAMED_VALUES = "unnamed_values"
    DYNAMIC_PROMPT = "dynamic_prompt"
    COMMENT = "comment"
    EXTRA_KEY = "extra_key"


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One dropped or changed thing; `node_id` is the flattened id, None for the whole file."""

    severity: Severity
    reason: Reason
    message: str
    node_id: str | None = None
    node_type: str | None = None
    input: str | None = None


@dataclass(slots=True)
class Report:
    """The lines of one import, in the order in which things were found."""

    lines: list[ReportLine] = field(default_factory=list)

    def info(self, reason: Reason, message: str, *place: str | None) -> None:
        """Add a line of no consequence; `place` is node id, node type, input, as far as known."""
        self.lines.append(ReportLine(Severity.INFO, reason, message, *place))

    def warn(self, reason: Reason, message: str, *place: str | None) -> None:
        """Add a line about something that may change the result; `place` as for `info`."""
        self.lines.append(ReportLine(Severity.WARNING, reason, message, *place))

    def error(self, reason: Reason, message: str, *place: str | None) -> None:
        """Add a line about something wrong in the workflow; `place` as for `info`."""
        self.lines.append(ReportLine(Severity.ERROR, reason, message, *place))
