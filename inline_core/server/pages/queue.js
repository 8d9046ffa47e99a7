/** The queue: what runs, what waits, pause and resume. */
/** @import {QueueHandlers, RunHead} from "./types" */
import { api, inWords } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";

const BUSY_MS = 1500;
const SHOWN = 30;
// The list of unfinished runs has no pages, so of a very long queue only the head is fetched.
const LONG = 300;

/** How far a run is; of ours the source nodes, done at once, do not count. @param {RunHead} run */
function percent({ fraction, meta }) {
	const nodes = meta.page?.nodes || 1;
	return Math.round(100 * Math.max(0, fraction * nodes - nodes + 1));
}

export class Queue {
	/** @param {QueueHandlers} handlers */
	constructor(handlers) {
		this.handlers = handlers;
		/** @type {RunHead[]} */
		this.runs = [];
		this.total = 0;
		this.paused = false;
		/** @type {string|null} */
		this.watched = null;
		this.list = byId("queue");
		this.button = byId("pause");
		this.button.addEventListener("click", () => this.toggle());
	}

	/** Health says how many there are. */
	setCounts(queue) {
		this.paused = queue.paused;
		this.total = queue.queued + queue.running;
		this.refresh();
	}

	async refresh() {
		try {
			const long = this.total > LONG;
			this.runs = (await api.runs(long ? "?status=running&limit=50" : "")).runs;
			if (!long) this.total = this.runs.length;
			this.draw();
			this.handlers.changed(this.runs);
		} catch {
			// The banner says so; health asks again.
		}
		clearTimeout(this.timer);
		if (this.runs.length && !document.hidden) this.timer = setTimeout(() => this.refresh(), BUSY_MS);
	}

	async toggle() {
		this.button.disabled = true;
		try {
			this.paused = (await api.queue(this.paused ? "resume" : "pause")).paused;
			announce(this.paused ? "The queue is paused." : "The queue goes on.");
			await this.refresh();
		} catch (error) {
			setText(byId("queue-note"), inWords(error));
		} finally {
			this.button.disabled = false;
		}
	}

	async cancel(runId, button) {
		button.disabled = true;
		// A refusal means that it ended meanwhile; the list will say.
		await api.cancel(runId).catch(() => {});
		button.disabled = false;
		this.refresh();
	}

	draw() {
		setText(this.button, this.paused ? "Resume" : "Pause");
		const note = this.paused ? "paused: nothing new starts" : this.total ? "" : "empty";
		setText(byId("queue-note"), note);
		byId("queue-note").classList.toggle("warn", this.paused);
		const known = new Map([...this.list.children].map((row) => [row.dataset.run, row]));
		const shown = this.runs.slice(0, SHOWN);
		const rows = shown.map((run) => this.row(run, known.get(run.runId) || this.makeRow(run)));
		const more = this.total - shown.length;
		if (more > 0) rows.push(el("li", { class: "muted", text: `and ${more} more` }));
		// Untouched rows stay in place, so that focus survives the refresh.
		const same = rows.length === this.list.children.length
			&& rows.every((row, index) => row === this.list.children[index]);
		if (!same) this.list.replaceChildren(...rows);
	}

	row(run, row) {
		const running = run.status === "running";
		const done = running ? percent(run) : 0;
		row.classList.toggle("watched", run.runId === this.watched);
		row.style.setProperty("--done", `${done}%`);
		setText(row.firstChild, running ? `${done} %` : `#${(run.queuePosition ?? 0) + 1}`);
		row.querySelector(".watch").hidden = run.runId === this.watched;
		return row;
	}

	makeRow(run) {
		const name = run.meta.page?.prompt || run.tags[0] || `${run.target} (${run.runId})`;
		const button = (text, onclick) =>
			el("button", { type: "button", class: text.toLowerCase(), text, "aria-label": `${text}: ${name}`, onclick });
		return el("li", { "data-run": run.runId }, el("span", { class: "state" }),
			el("span", { class: "name", text: name, title: name }),
			el("span", { class: "buttons" }, button("Watch", () => this.handlers.watch(run)),
				button("Cancel", (event) => this.cancel(run.runId, event.currentTarget))));
	}
}
