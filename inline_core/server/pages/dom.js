/** Helpers for the document. Server strings only ever become text, never markup. */

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** Make an element: `on…` functions become listeners, `text` its text; null and false are left out. */
export function el(tag, props = {}, ...children) {
	const node = document.createElement(tag);
	for (const [key, value] of Object.entries(props)) {
		if (value === null || value === undefined || value === false) continue;
		if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
		else if (key === "text") node.textContent = value;
		else node.setAttribute(key, value === true ? "" : value);
	}
	node.append(...children.filter((child) => child !== null));
	return node;
}

/** Say something to screen readers. @param {string} text */
export const announce = (text) => setText(byId("live"), text);

/** Set text only when it changes. @param {HTMLElement} node @param {string} text */
export function setText(node, text) {
	if (node.textContent !== text) node.textContent = text;
}

/** Show a problem, or clear it; with its input. @param {HTMLElement} node @param {string} [text] @param {HTMLElement} [input] */
export function setProblem(node, text = "", input) {
	node.textContent = text;
	node.hidden = !text;
	if (text) input?.setAttribute("aria-invalid", "true");
	else input?.removeAttribute("aria-invalid");
}

/** @param {number} bytes */
export function inBytes(bytes) {
	let value = bytes;
	let unit = 0;
	for (; value >= 1024 && unit < 4; unit += 1) value /= 1024;
	return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** @param {number} ms */
export function inTime(ms) {
	const seconds = ms / 1000;
	if (seconds < 90) return `${seconds < 10 ? Math.max(0.1, seconds).toFixed(1) : Math.round(seconds)} s`;
	return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
