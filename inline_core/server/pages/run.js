/** The stage: the run that is watched, live, and what became of it. */
/** @import {RunHandlers} from "./types" */
import { api, bytesUrl, inWords } from "./api.js";
import { announce, byId, el, inTime, setText } from "./dom.js";
import { RunStream } from "./stream.js";

const PHASES = {
	queued: "Waiting",
	preparing: "Preparing",
	loading: "Loading the model",
	encode: "Reading the prompt",
	sample: "Sampling",
	decode: "Decoding the picture",
	save: "Saving",
};
const MOST_MARKS = 60;

export class RunView {
	/** @param {RunHandlers} handlers */
	constructor(handlers) {
		this.handlers = handlers;
		/** @type {string|null} */
		this.runId = null;
		/** @type {RunStream|null} */
		this.stream = null;
		this.url = "";
		this.stage = byId("stage");
		this.picture = byId("picture");
		this.bar = byId("bar");
		this.phase = byId("phase");
		this.side = byId("eta");
		this.outcome = byId("outcome");
		this.cancel = el("button", { type: "button", id: "cancel", text: "Cancel", onclick: () => this.stop() });
	}

	/** True while a run that is not over is watched. */
	get active() {
		return this.stream !== null;
	}

	watch(runId, meta, status = "queued") {
		this.stream?.close();
		this.runId = runId;
		this.prompt = meta.page?.prompt || "";
		this.lost = false;
		this.outcome.replaceChildren();
		this.cancel.disabled = false;
		byId("actions").replaceChildren(this.cancel);
		// What was made before stays, dimmed, until there is something new to see.
		this.picture.dataset.stale = "";
		byId("frame").querySelector(".media")?.remove();
		this.setStatus(status);
		this.progress({ phase: "queued" });
		this.stream = new RunStream(runId, {
			frame: (frame) => this.frame(frame),
			preview: (header, jpeg) => this.preview(header, jpeg),
			lost: (waiting) => this.setLost(waiting),
			gone: () => this.finish(null),
		});
	}

	setStatus(status) {
		this.status = status;
		this.stage.dataset.state = status;
	}

	setLost(waiting) {
		if (this.lost === waiting) return;
		this.lost = waiting;
		setText(this.side, waiting ? "Connection lost, reconnecting…" : "");
	}

	/** Where a waiting run stands. */
	setPosition(position, paused) {
		if (!this.active || this.status !== "queued") return;
		const place = paused ? "the queue is paused" : position ? `${position} before it` : "next in line";
		setText(this.phase, `Waiting: ${place}`);
	}

	frame(frame) {
		switch (frame.type) {
			case "snapshot":
				this.snapshot(frame.state);
				break;
			case "queued":
				this.setStatus("queued");
				break;
			case "run_started":
				this.setStatus("running");
				this.progress({ phase: "preparing" });
				break;
			case "progress":
				this.setStatus("running");
				this.progress(frame);
				break;
			case "node_done":
				frame.takes.forEach(this.handlers.take);
				break;
			case "run_done":
			case "cancelled":
			case "error":
				this.ended();
				break;
			default:
		}
	}

	snapshot(run) {
		this.prompt = run.meta.page?.prompt || "";
		if (!["queued", "running"].includes(run.status)) {
			this.finish(run);
			return;
		}
		this.setStatus(run.status);
		run.takes.forEach(this.handlers.take);
		const node = Object.values(run.nodes).find((one) => one.state === "running" && one.phase);
		if (node) this.progress(node);
	}

	progress({ phase, step, stepCount, fraction = 0, status, etaMs = 0 }) {
		const late = phase === "decode" || phase === "save";
		this.bar.value = stepCount ? step / stepCount : Number(late);
		this.bar.style.setProperty("--steps", stepCount <= MOST_MARKS ? stepCount : 1);
		const words = PHASES[phase] || status || "Working";
		if (words !== this.words) announce(words);
		this.words = words;
		setText(this.phase, stepCount ? `${words}: step ${step} of ${stepCount}` : words);
		if (!this.lost) setText(this.side, etaMs > 900 ? `about ${inTime(etaMs)} left` : "");
		document.title = `${Math.round(fraction * 100)} % · Inline Core`;
	}

	/** Show a picture; until it is loaded, the one before stays. */
	show(url, alt) {
		// What is shown already is not loaded again, so its URL may go.
		if (this.url) URL.revokeObjectURL(this.url);
		this.url = url;
		this.picture.onload = () => delete this.picture.dataset.stale;
		this.picture.src = url;
		this.picture.alt = alt;
		this.picture.hidden = false;
	}

	preview(header, jpeg) {
		this.picture.dataset.preview = header.step ?? "";
		this.show(URL.createObjectURL(jpeg), `Preview: ${this.prompt}`);
	}

	clearPicture() {
		this.picture.hidden = true;
		this.picture.removeAttribute("src");
	}

	async stop() {
		this.cancel.disabled = true;
		setText(this.phase, "Cancelling…");
		try {
			await api.cancel(this.runId);
		} catch (error) {
			// It ended meanwhile, and its last frame says how.
			if (error.status === 409) return;
			this.cancel.disabled = false;
			this.outcome.replaceChildren(el("p", { class: "problem", role: "alert", text: inWords(error) }));
		}
	}

	/** The last frame came: fetch all of the run. */
	async ended() {
		const { runId } = this;
		const run = await api.run(runId).catch(() => null);
		if (this.runId === runId) this.finish(run);
	}

	/** Show how a run ended; null if nobody knows. */
	finish(run) {
		this.stream?.close();
		this.stream = null;
		document.title = "Inline Core";
		setText(this.side, "");
		this.setStatus(run?.status || "gone");
		byId("actions").replaceChildren();
		if (run?.status === "done") this.done(run);
		else this.failed(run);
		this.handlers.finished();
	}

	done(run) {
		run.takes.forEach(this.handlers.take);
		const time = inTime((run.finishedAt || 0) - (run.startedAt || 0));
		setText(this.phase, `Done in ${time}`);
		announce(`The run is done, in ${time}.`);
		const take = run.takes.find((one) => one.nodeId === run.target) || run.takes.at(-1);
		const seed = take?.params.seed ?? Object.values(run.seeds)[0];
		if (seed !== undefined) setText(this.side, `Seed ${seed}`);
		if (take) this.result(take);
		const warnings = run.warnings.map((one) => el("li", { text: one.message }));
		if (warnings.length) this.outcome.replaceChildren(el("ul", { class: "warnings" }, ...warnings));
	}

	result(take) {
		const alt = take.params.prompt || this.prompt || "The result of the run";
		const url = bytesUrl("takes", take.id);
		if (take.kind === "image") {
			delete this.picture.dataset.preview;
			this.show(url, alt);
		} else {
			this.clearPicture();
			byId("frame").append(el(take.kind, { class: "media", src: url, controls: true, "aria-label": alt }));
		}
		byId("actions").replaceChildren(
			el("button", { type: "button", text: "Details", onclick: () => this.handlers.open(take) }),
			el("a", { class: "button", href: url, download: take.uri.split("/").pop(), text: "Download" }));
	}

	failed(run) {
		this.clearPicture();
		const error = run?.error;
		if (run?.status === "cancelled") {
			setText(this.phase, "Cancelled");
			announce("The run was cancelled.");
			return;
		}
		setText(this.phase, error ? "The run failed" : "What became of this run is not known");
		if (!error) return;
		const where = error.nodeId && !run?.meta.page ? ` in node ${error.nodeId}` : "";
		const facts = Object.entries(error.details || {}).map(([key, value]) =>
			el("li", { text: `${key}: ${JSON.stringify(value)}` }));
		this.outcome.replaceChildren(el("div", { class: "failure", role: "alert" },
			el("p", { text: error.message }), el("p", { class: "muted" }, el("code", { text: error.code }), where),
			el("ul", { class: "muted" }, ...facts)));
	}
}
