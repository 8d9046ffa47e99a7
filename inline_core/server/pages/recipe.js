/** Recipes: out of a dropped file or a take, into the form, or run as they are. */
/** @import {Problem, Recipe} from "./types" */
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
			this.say(`${file.name}: ${inWords(error)}`);
		}
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

	async run({ graph, target }, name) {
		const meta = { page: { prompt: name, nodes: graph.nodes.length } };
		try {
			const { runId } = await api.submit({ graph, target, meta });
			this.card.hidden = true;
			this.form.submitted(runId, meta);
		} catch (error) {
			this.say(`${name}: ${inWords(error)}`, (error.problems || []).slice(1).map(({ message }) => message));
		}
	}

	/** @param {string} text @param {string[]} [notes] @param {any} [button] */
	say(text, notes = [], button = null) {
		const close = el("button", { type: "button", text: "Close", onclick: () => (this.card.hidden = true) });
		const list = el("ul", { class: "problem-list" }, ...notes.map((note) => el("li", { text: note })));
		this.card.replaceChildren(el("p", { text }), notes.length ? list : "", el("div", { class: "buttons" }, button, close));
		this.card.hidden = false;
		this.card.scrollIntoView({ block: "nearest" });
	}
}
