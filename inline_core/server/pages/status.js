/** Health of the server, the banner, and what is missing. */
/** @import {Descriptor, News} from "./types" */
import { api } from "./api.js";
import { byId, el, inBytes, setText } from "./dom.js";

const EVERY_MS = 4000;
const LOW_DISK_BYTES = 1024 ** 3;
const NEEDED = [["diffusion_models", "a diffusion model"], ["vae", "a VAE"], ["text_encoders", "a text encoder"]];
const DOWN = "The server cannot be reached. This page keeps trying; queued runs are kept.";

export class Status {
	/** @param {News} news */
	constructor(news) {
		this.news = news;
		this.registry = "";
		this.finished = -1;
		this.down = false;
		document.addEventListener("visibilitychange", () => this.poll());
		window.addEventListener("online", () => this.poll());
	}

	/** Ask now, and again while the page is visible. */
	async poll() {
		clearTimeout(this.timer);
		if (document.hidden) return;
		// Without a reply the connection listener shows the banner.
		const health = await api.health().catch(() => null);
		if (health) this.draw(health);
		clearTimeout(this.timer);
		this.timer = setTimeout(() => this.poll(), EVERY_MS);
	}

	connection(state, message) {
		const came = this.down && state === "up";
		this.down = state !== "up";
		byId("banner").hidden = !this.down;
		setText(byId("banner"), this.down ? (state === "refused" && message) || DOWN : "");
		document.body.classList.toggle("offline", this.down);
		if (came) this.poll();
	}

	draw(health) {
		const { device, queue, disk, runs } = health;
		const cpu = device.kind === "cpu";
		const free = cpu ? device.ramFreeMb : device.vramFreeMb;
		const facts = [
			[cpu ? "CPU" : device.name || device.kind, device.reason],
			[free === null ? "" : `${inBytes(free * 1024 ** 2)} ${cpu ? "" : "GPU "}memory free`],
			[`${queue.running} running, ${queue.queued} waiting${queue.paused ? ", paused" : ""}`],
			[`${inBytes(disk.freeBytes)} disk free`, "", disk.freeBytes < LOW_DISK_BYTES && "warn"],
			[`v${health.version}`],
		];
		const items = facts.map(([text, title, tone]) => el("li", { text, title, class: tone }));
		byId("facts").replaceChildren(...items);
		const errors = health.lastErrors.map((error) =>
			[`${new Date(error.at).toLocaleString()} · ${error.code}`, error.message]);
		listing("last-errors", "Last errors", errors);
		const finished = runs.done + runs.error + runs.cancelled;
		const changed = { models: health.registryVersion !== this.registry, runs: finished !== this.finished };
		this.registry = health.registryVersion;
		this.finished = finished;
		this.news(health, changed);
	}
}

/** Fill one of the lists that open. @param {string} id @param {string} title @param {string[][]} rows */
function listing(id, title, rows) {
	const root = byId(id);
	const key = JSON.stringify(rows);
	if (root.dataset.rows === key) return;
	root.dataset.rows = key;
	const items = rows.map(([name, text]) => el("li", {}, el("strong", { text: name }), el("span", { text })));
	root.replaceChildren(el("summary", { text: `${title} (${rows.length})` }), el("ul", {}, ...items));
	root.hidden = rows.length === 0;
	byId("server").hidden = !byId("server").querySelector("details:not([hidden])");
}

/**
 * What to tell about the models: only the demo, what is missing, what cannot be used.
 * @param {Descriptor|undefined} model
 * @param {{files: any[], warnings: string[]}} found
 */
export function showModels(model, { files, warnings }) {
	const bad = files.filter((file) => file.status !== "ready");
	listing("bad-files", "Files that cannot be used", bad.map((file) =>
		[`models/${file.category}/${file.name}`, `${file.status}: ${file.reason}`]));
	const code = (text) => el("code", { text });
	const notes = warnings.map((text) => el("p", { text }));
	const picker = model?.params.find((param) => param.optionsFrom === "diffusion_models");
	const best = picker?.default || picker?.options?.[0]?.value || "";
	const file = files.find((one) => one.name === best);
	const missing = NEEDED.filter(([category]) =>
		model?.params.some((param) => param.optionsFrom === category && !param.options?.length));
	const how = ["New files are seen without a restart; ", code("models/README.md"), " says which fit."];
	if (best && (file?.source === "demo" || file?.variant === "demo" || /demo/i.test(best))) {
		notes.push(el("p", {}, el("strong", { text: "Small demo model: coloured shapes only. " }),
			"Drop real files into ", code("models/"), ". ", ...how));
	} else if (missing.length) {
		const items = missing.map(([category, what]) => el("li", {}, `${what}: put it into `, code(`models/${category}/`)));
		notes.push(el("div", {}, el("strong", { text: `Files for ${model?.title} are missing.` }), el("ul", {}, ...items), ...how));
	}
	byId("notices").replaceChildren(...notes);
}
