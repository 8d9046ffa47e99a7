/** The form: which node, the prompt, its params, and the run they make. */
/** @import {Descriptor, Field, Problem, Recipe} from "./types" */
import { api, ApiError, inWords, Unreachable } from "./api.js";
import { byId, el, setProblem } from "./dom.js";
import { askable, makeField } from "./fields.js";
import { StartImage } from "./upload.js";

const STORE = `inline-core:${location.pathname}`;

/** A random id; `crypto.randomUUID` is missing outside secure contexts. */
function newId() {
	return `page-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
}

/** Nodes that make something from a prompt alone. @param {Descriptor} model */
function isOneClick(model) {
	const needed = model.inputs.filter((port) => port.required);
	return !model.hidden && model.category === "Generate"
		&& ["image", "video", "audio"].includes(model.outputKind || "")
		&& needed.length === 1 && needed[0].id === "prompt" && needed[0].kind === "text";
}

export class RunForm {
	/** @param {(runId: string, meta: object) => void} submitted */
	constructor(submitted) {
		this.submitted = submitted;
		this.form = byId("form");
		this.node = byId("node");
		this.prompt = byId("prompt");
		this.button = byId("run");
		/** @type {Map<string, Descriptor>} */
		this.models = new Map();
		/** @type {Field[]} */
		this.fields = [];
		this.sent = { body: "", id: "" };
		this.busy = false;
		this.image = new StartImage(() => this.save());
		this.form.addEventListener("submit", (event) => {
			event.preventDefault();
			this.run();
		});
		this.form.addEventListener("input", () => this.save());
		this.node.addEventListener("change", () => this.build(this.params(false)));
		this.prompt.addEventListener("input", () => this.promptProblem());
		byId("defaults").addEventListener("click", () => {
			this.image.set(null);
			this.build({});
		});
		document.addEventListener("keydown", (event) => {
			if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
			if (document.querySelector("dialog[open]")) return;
			event.preventDefault();
			this.run();
		});
		if (/Mac|iP/.test(navigator.platform)) byId("keys").textContent = "⌘ ⏎";
	}

	get model() {
		return this.models.get(this.node.value);
	}

	/** Offer these node types; what is filled in stays. */
	setModels(models) {
		const kept = this.models.size ? this.state() : saved();
		this.models = new Map(models.filter(isOneClick).map((model) => [model.type, model]));
		const options = [...this.models.values()].map(({ type, title }) => el("option", { value: type, text: title }));
		const none = options.length === 0;
		if (none) options.push(el("option", { text: "No node makes something from a prompt" }));
		this.node.replaceChildren(...options);
		this.node.disabled = this.button.disabled = none;
		if (this.models.has(kept.type)) this.node.value = kept.type;
		this.prompt.value ||= kept.prompt || "";
		this.image.value = kept.image || null;
		this.image.draw();
		this.build(kept.values || {});
	}

	/** Make the fields of the chosen node. */
	build(values) {
		const { model } = this;
		if (!model) return;
		this.fields = askable(model.params).map(makeField);
		for (const field of this.fields) {
			if (values[field.param.key] !== undefined) field.write(values[field.param.key]);
		}
		const roots = (advanced) =>
			this.fields.filter((field) => Boolean(field.param.advanced) === advanced).map((field) => field.root);
		byId("fields").replaceChildren(...roots(false));
		byId("advanced-fields").replaceChildren(...roots(true));
		byId("advanced").hidden = roots(true).length === 0;
		byId("field-image").hidden = !model.inputs.some((port) => port.id === "image" && port.kind.startsWith("image"));
		this.clearProblems();
		this.save();
	}

	/** The values of the fields, all or those that differ from the defaults; empty ones are left to the server. */
	params(all = true) {
		const pairs = this.fields.map((field) => [field.param.key, field.read(), field.param.default]);
		return Object.fromEntries(pairs.filter(([, value, usual]) => value !== undefined && (all || value !== usual)));
	}

	state() {
		return { type: this.node.value, prompt: this.prompt.value, values: this.params(false), image: this.image.value };
	}

	save() {
		try {
			localStorage.setItem(STORE, JSON.stringify(this.state()));
		} catch {
			// Storage may be full or forbidden.
		}
	}

	/** Fill the form as a take was made. */
	fill(type, params) {
		if (type && this.models.has(type)) this.node.value = type;
		if (typeof params.prompt === "string") this.prompt.value = params.prompt;
		this.image.set(null);
		this.build(params);
		this.prompt.focus();
	}

	/** Fill the form from a recipe; false if it cannot show all of it. @param {Recipe} recipe */
	load({ graph, target }) {
		const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
		const { type, params, inputs = {} } = nodes.get(target);
		if (!this.models.has(type)) return false;
		const sources = Object.entries(inputs).map(([port, edges]) => [port, nodes.get([edges].flat()[0]?.from)]);
		const { prompt, image, ...more } = Object.fromEntries(sources);
		const asset = image?.params?.asset;
		const start = !image || (image.type === "input/image" && ["asset", "take"].includes(asset?.ref));
		if (prompt?.type !== "input/text" || !start || Object.keys(more).length) return false;
		this.fill(type, { ...params, prompt: prompt.params?.text || "" });
		if (image) this.image.set({ ref: asset.ref, id: asset.id, name: "the start image of the recipe" });
		return true;
	}

	/** The body of POST /v1/runs. */
	request(model) {
		const text = this.prompt.value;
		/** @type {any[]} */
		const nodes = [{ id: "prompt", type: "input/text", params: { text } }];
		/** @type {Record<string, any>} */
		const inputs = { prompt: { from: "prompt", output: "text" } };
		if (this.image.value && !byId("field-image").hidden) {
			const { ref, id } = this.image.value;
			nodes.push({ id: "start", type: "input/image", params: { asset: { ref, id } } });
			inputs.image = { from: "start", output: "image" };
		}
		nodes.push({ id: "result", type: model.type, params: this.params(), inputs });
		const meta = { page: { type: model.type, prompt: text.slice(0, 500), nodes: nodes.length } };
		return { graph: { schemaVersion: 1, nodes }, target: "result", meta };
	}

	async run() {
		if (this.busy || !this.model) return;
		this.clearProblems();
		if (!this.prompt.value.trim()) this.promptProblem("Type a prompt first.");
		for (const field of this.fields) {
			if (field.input.validity.badInput) field.problem("This is not a number.");
		}
		if (this.focusFirst()) return;
		const request = this.request(this.model);
		const body = JSON.stringify(request);
		// The same id again after a lost reply: the server then starts it once, not twice.
		if (body !== this.sent.body) this.sent = { body, id: newId() };
		this.setBusy(true);
		try {
			const { runId } = await api.submit({ ...request, clientRunId: this.sent.id });
			this.sent.body = "";
			this.submitted(runId, request.meta);
		} catch (error) {
			if (!(error instanceof Unreachable)) this.sent.body = "";
			this.showProblems(error);
		} finally {
			this.setBusy(false);
		}
	}

	setBusy(busy) {
		this.busy = busy;
		this.button.setAttribute("aria-busy", busy);
	}

	clearProblems() {
		for (const field of this.fields) field.problem();
		this.promptProblem();
		this.image.problem();
		byId("problems").replaceChildren();
	}

	promptProblem(text) {
		setProblem(byId("prompt-error"), text, this.prompt);
	}

	/** Each problem at the field it names, the rest as a list. */
	showProblems(error) {
		const problems = error instanceof ApiError ? error.problems : [{ code: "", message: inWords(error) }];
		const rest = problems.filter((problem) => !this.place(problem));
		const items = rest.map(({ message, code }) => el("li", {}, `${message} `, el("code", { text: code })));
		if (items.length) byId("problems").replaceChildren(el("ul", { class: "problem-list" }, ...items));
		this.focusFirst();
	}

	/** Put a problem at its field, if there is one. */
	place({ nodeId, port, param, message }) {
		if (nodeId === "prompt" || port === "prompt") this.promptProblem(message);
		else if (nodeId === "start" || port === "image") this.image.problem(message);
		else {
			const field = this.fields.find((one) => one.param.key === param);
			if (!field) return false;
			field.problem(message);
			if (field.param.advanced) byId("advanced").open = true;
		}
		return true;
	}

	/** Go to the first field with a problem; false if there is none. */
	focusFirst() {
		const first = this.form.querySelector("[aria-invalid]");
		first?.focus();
		return Boolean(first);
	}
}

/** What was in the form before the page was loaded. @returns {any} */
function saved() {
	try {
		return JSON.parse(localStorage.getItem(STORE) || "{}");
	} catch {
		return {};
	}
}
