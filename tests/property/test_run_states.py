"""A state machine over submit, cancel, crash, restart and reconnect: event logs stay whole."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from inline_core.settings import Settings
from tests.fault_nodes import GATE, specs_with_faults
from tests.lengths import at_length
from tests.live import LiveServer

TERMINAL = {"run_done", "error", "cancelled"}
# What may follow what in the log of one run.
NEXT = {
    None: {"queued"},
    "queued": {"run_started", "cancelled", "queued"},
    "run_started": {"node_started", "node_done", "run_done", "error", "cancelled", "queued"},
    "node_started": {"node_done", "error", "cancelled", "queued"},
    "node_done": {"node_started", "node_done", "run_done", "error", "cancelled", "queued"},
}


class RunStates(RuleBasedStateMachine):
    runs = Bundle("runs")

    @initialize()
    def start(self) -> None:
        GATE.reset()
        self.folder = Path(tempfile.mkdtemp(prefix="states-"))
        self.settings = Settings(
            data_dir=self.folder / "data",
            models_dir=self.folder / "models",
            demo_model=False,
            warm_up=False,
            walkers=2,
            max_attempts=3,
        )
        self.server = LiveServer(self.settings, specs_with_faults())
        self.seen: dict[str, list[int]] = {}
        self.client_ids: dict[str, str] = {}

    @rule(
        target=runs,
        shade=st.integers(0, 3),
        kind=st.sampled_from(["paint", "wait", "boom", "steps"]),
    )
    def submit(self, shade: int, kind: str) -> str:
        params: dict[str, Any] = {} if kind == "boom" else {"shade": shade}
        if kind == "steps":
            params["count"] = 3
        client_id = f"c{len(self.client_ids)}"
        nodes = [{"id": "n", "type": f"test/{kind}", "params": params}]
        reply = self.server.submit(nodes, "n", clientRunId=client_id)
        assert reply.status_code == 201
        run_id: str = reply.json()["runId"]
        again = self.server.submit(nodes, "n", clientRunId=client_id)
        assert (again.status_code, again.json()["runId"]) == (200, run_id)
        self.client_ids[client_id] = run_id
        return run_id

    @rule(run_id=runs)
    def cancel(self, run_id: str) -> None:
        reply = self.server.http.delete(f"/v1/runs/{run_id}")
        assert reply.status_code in {200, 409}
        if reply.status_code == 200:
            self.server.frames(run_id)
            assert self.server.run(run_id)["status"] in {"cancelled", "done", "error"}

    @rule()
    def open_the_gate(self) -> None:
        GATE.open.set()

    @rule()
    def close_the_gate(self) -> None:
        GATE.open.clear()

    @rule()
    def crash_and_restart(self) -> None:
        # The database stops taking writes first, so nothing is settled: as after a kill.
        self.server.services.database.close()
        GATE.open.set()
        self.server.close()
        GATE.open.clear()
        self.server = LiveServer(self.settings, specs_with_faults())

    @rule()
    def restart_cleanly(self) -> None:
        self.server.close()
        self.server = LiveServer(self.settings, specs_with_faults())

    @rule(run_id=runs, share=st.floats(0, 1))
    def reconnect(self, run_id: str, share: float) -> None:
        """Resuming anywhere gives exactly the rest."""
        log = self.log(run_id)
        after = 0 if share < 0.1 else log[int(share * (len(log) - 1))]["seq"]
        expected = [event["seq"] for event in log if event["seq"] > after]
        got: list[int] = []
        with self.server.socket(run_id, f"?after={after}&events=all") as socket:
            while len(got) < len(expected):
                frame = json.loads(socket.recv(timeout=20))
                if "seq" in frame and frame["type"] != "snapshot":
                    got.append(frame["seq"])
        assert got[: len(expected)] == expected

    def log(self, run_id: str) -> list[dict[str, Any]]:
        events = self.server.services.queries.events_after(run_id, 0)
        return [{"seq": event.seq, "type": event.type.value} for event in events]

    @invariant()
    def logs_are_whole(self) -> None:
        if not hasattr(self, "server"):
            return
        for run_id in self.client_ids.values():
            log = self.log(run_id)
            numbers = [event["seq"] for event in log]
            assert numbers == sorted(set(numbers))
            before = self.seen.get(run_id, [])
            assert numbers[: len(before)] == before, "an event changed or vanished"
            self.seen[run_id] = numbers
            last = None
            for event in log:
                assert event["type"] in NEXT.get(last, set()), (last, event["type"])
                last = event["type"]

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        GATE.open.set()
        for run_id in self.client_ids.values():
            frames = self.server.frames(run_id, "?after=0&events=all")
            assert [f["type"] for f in frames if f["type"] in TERMINAL] == [frames[-1]["type"]]
        self.server.close()
        shutil.rmtree(self.folder)


RunStates.TestCase.settings = settings(
    max_examples=at_length(12, 8),
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestRunStates = RunStates.TestCase
