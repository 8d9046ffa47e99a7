/** One form field for one param of a descriptor. */
/** @import {Field, Param} from "./types" */
import { el, setProblem } from "./dom.js";

/**
 * The params that can be asked for. A picker without any file has nothing to ask; a param named
 * after it (`controlnet` and `controlnet_scale`) goes with it.
 * @param {Param[]} params
 */
export function askable(params) {
	const empty = params.filter((param) => param.optionsFrom && !param.options?.length);
	return params.filter(({ key }) =>
		!empty.some((picker) => key === picker.key || key.startsWith(`${picker.key}_`)));
}

/** @param {Param} param @param {object} common */
function control(param, common) {
	switch (param.widget) {
		case "boolean":
			return el("input", { ...common, type: "checkbox" });
		case "textarea":
			return el("textarea", { ...common, rows: 2 });
		case "select": {
			const options = (param.options || []).map(({ value, label }) => el("option", { value, text: label }));
			if (param.optionsFrom) options.unshift(el("option", { value: "", text: "Automatic" }));
			return el("select", common, ...options);
		}
		case "number":
		case "seed":
			return el("input", {
				...common, type: "number", inputmode: "decimal", min: param.min, max: param.max,
				step: param.step ?? (param.widget === "seed" ? 1 : "any"), autocomplete: "off",
			});
		default:
			return el("input", { ...common, type: "text", autocomplete: "off" });
	}
}

/** @param {Param} param @returns {Field} */
export function makeField(param) {
	const id = `param-${param.key}`;
	const input = control(param, { id, "aria-describedby": `${id}-range ${id}-error` });
	const error = el("p", { class: "problem", id: `${id}-error`, hidden: true });
	const seed = param.widget === "seed";
	const check = param.widget === "boolean";
	const bounded = param.min !== undefined && param.max !== undefined;
	const range = seed ? "−1: a new one each run" : bounded ? `${param.min}–${param.max}` : "";
	const head = el("div", { class: "label" },
		el("label", { for: id, text: param.label.replace(" (-1 = random)", "") }),
		el("span", { class: "muted", id: `${id}-range`, text: range }));
	const wide = seed || input.matches("textarea, [type=text]") || param.optionsFrom;
	const root = el("div", { class: `field${wide ? " wide" : ""}${check ? " check" : ""}` });
	if (seed) {
		const random = el("button", {
			type: "button", text: "Random",
			onclick: () => {
				input.value = -1;
				input.dispatchEvent(new Event("input", { bubbles: true }));
			},
		});
		root.append(head, el("div", { class: "with-button" }, input, random), error);
	} else root.append(...(check ? [input, head] : [head, input]), error);

	/** @type {Field} */
	const field = {
		param, root, input,
		read() {
			if (check) return input.checked;
			if (input.type === "number") return input.value === "" ? undefined : Number(input.value);
			return input.value;
		},
		write(value) {
			if (check) input.checked = Boolean(value);
			else input.value = value ?? "";
			// A file that is not there any more.
			if (input.selectedIndex === -1) input.value = param.default ?? "";
		},
		problem: (text) => setProblem(error, text, input),
	};
	input.addEventListener("input", () => field.problem());
	field.write(param.default);
	return field;
}
