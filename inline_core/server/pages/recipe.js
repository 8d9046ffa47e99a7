/** Recipes: out of a dropped file or a take, into the form, or run as they are. */
/** @import {Problem, Recipe, WorkflowReport} from "./types" */
import { api, inWords } from "./api.js";
import { announce, byId, el } from "./dom.js";

export class Recipes {
	/** @param {import("./form.js").RunForm} form */
	constructor(form) {
		this.form = form;
		this.card = byId("recipe");
		for (const type of ["dragover", "drop"]) {
			document.addEventListener(type, (event) => {
				// A file dropped on the form is its start image.
				if (event.defaultPrevented || !event.dataTransfer?.types.includes("Files")) return;
				event.preventDefault();
				if (type === "drop") this.read(event.dataTransfer.files[0]);
			});
		}
	}

	/** Get the recipe out of a file. */
	async read(file) {
		try {
			const { report, ...recipe } = await api.import(file);
			this.load(recipe, file.name, report.warnings);
		} catch (error) {
			if (!(await this.readWorkflow(file))) this.say(`${file.name}: ${inWords(error)}`);
		}
	}

	/** Take a file for a ComfyUI workflow; false if it is none. @param {File} file */
	async readWorkflow(file) {
		let found;
		try {
			found = await api.importWorkflow(file);
		} catch (error) {
			// What is a workflow but a broken one says where; anything else is none.
			if (!/\.json$/i.test(file.name)) return false;
			this.say(`${file.name}: ${inWords(error)}`);
			return true;
		}
		const { graph, targets, report } = found;
		const label = report.complete ? "Run this workflow" : "Run what can be made of it";
		const start = el("button", { type: "button", class: "primary", text: label, onclick: () => this.run({ graph, targets }, file.name) });
		this.say(`${file.name} is a ComfyUI workflow of ${report.nodes.length} nodes: ${report.summary}.`, workflowNotes(report), targets.length ? start : null);
		return true;
	}

	/** Fill the form, or offer to run what the form cannot show. @param {Recipe} recipe @param {string} name @param {Problem[]} warnings */
	load(recipe, name, warnings) {
		const shown = this.form.load(recipe);
		const notes = warnings.map(({ message }) => message);
		if (shown && !notes.length) {
			this.card.hidden = true;
			announce(`The form is filled from ${name}.`);
			return;
		}
		const count = recipe.graph.nodes.length;
		const text = shown ? `The form is filled from ${name}.` : `${name} was made by a graph of ${count} nodes that the form cannot show.`;
		const start = el("button", { type: "button", class: "primary", text: "Run this recipe", onclick: () => this.run(recipe, name) });
		this.say(text, notes, shown ? null : start);
	}

	/** @param {Recipe} recipe @param {string} name */
	async run({ graph, target, targets }, name) {
		const meta = { page: { prompt: name, nodes: graph.nodes.length } };
		try {
			const { runId } = await api.submit(targets ? { graph, targets, meta } : { graph, target, meta });
			this.card.hidden = true;
			this.form.submitted(runId, meta);
		} catch (error) {
			this.say(`${name}: ${inWords(error)}`, (error.problems || []).slice(1).map(({ message }) => message));
		}
	}

	/** @param {string} text @param {any[]} [notes] texts or elements @param {any} [button] */
	say(text, notes = [], button = null) {
		const close = el("button", { type: "button", text: "Close", onclick: () => (this.card.hidden = true) });
		const list = el("ul", { class: "problem-list" }, ...notes.map((note) => (typeof note === "string" ? el("li", { text: note }) : el("li", {}, note))));
		this.card.replaceChildren(el("p", { text }), notes.length ? list : "", el("div", { class: "buttons" }, button, close));
		this.card.hidden = false;
		this.card.scrollIntoView({ block: "nearest" });
	}
}

/** What people should know of an imported workflow, one line each. @param {WorkflowReport} report @returns {any[]} */
function workflowNotes(report) {
	const notes = [];
	for (const { state, title, classType, reason, alternative } of report.nodes) {
		if (state === "unsupported") notes.push(`${title} (${classType}): ${reason}${alternative ? `; instead: ${alternative}` : ""}`);
	}
	for (const { category, name, present, url } of report.files) {
		if (present) continue;
		const text = `Missing: models/${category}/${name}`;
		notes.push(url && /^https:/.test(url) ? el("span", {}, `${text} `, el("a", { href: url, rel: "noreferrer", target: "_blank", text: "get it" })) : text);
	}
	for (const { title, warnings } of report.nodes) notes.push(...warnings.map((text) => `${title}: ${text}`));
	for (const { severity, message, nodeType } of report.lines) {
		if (severity !== "info") notes.push(`${nodeType ?? "Workflow"}: ${message}`);
	}
	return notes;
}
