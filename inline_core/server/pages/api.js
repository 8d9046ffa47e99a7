/** The public /v1 interface. All paths are relative, so the page works below any prefix. */
/** @import {Api, Listener, Problem, RequestOptions} from "./types" */

/** A reply of the server that says no. */
export class ApiError extends Error {
	/** @param {number} status @param {any} error */
	constructor(status, error) {
		super(error?.message || `The server answered ${status}.`);
		this.status = status;
		/** @type {string} */
		this.code = error?.code || `http_${status}`;
		/** @type {Problem[]} */
		this.problems = error?.problems?.length
			? error.problems : [{ ...error, message: this.message, code: this.code }];
	}
}

/** No reply at all: the server is stopped, or the network is down. */
export class Unreachable extends Error {
	constructor() {
		super("The server cannot be reached. Try again when it is back.");
	}
}

/** @type {Listener} */
let report = () => {};

/** Hear whether the server answers. @param {Listener} listener */
export function onConnection(listener) {
	report = listener;
}

/** One request; gives the decoded JSON. @param {string} method @param {string} path @param {RequestOptions} [options] */
async function request(method, path, { json, body, timeout = 20_000 } = {}) {
	let response;
	let data = null;
	try {
		response = await fetch(path, {
			method,
			headers: json ? { "Content-Type": "application/json" } : {},
			body: json ? JSON.stringify(json) : body,
			signal: timeout ? AbortSignal.timeout(timeout) : undefined,
		});
		const text = await response.text();
		// A proxy in front of a stopped server answers in HTML.
		if (text) data = JSON.parse(text);
	} catch {
		report("down");
		throw new Unreachable();
	}
	const refused = response.status === 401 || response.status === 403;
	report(refused ? "refused" : "up", data?.error?.message);
	if (!response.ok) throw new ApiError(response.status, data?.error);
	return data;
}

const part = encodeURIComponent;

/** @type {Api} */
export const api = {
	health: () => request("GET", "v1/health", { timeout: 8000 }),
	models: () => request("GET", "v1/models"),
	modelFiles: () => request("GET", "v1/model-files"),
	submit: (json) => request("POST", "v1/runs", { json }),
	runs: (query = "") => request("GET", `v1/runs${query}`),
	run: (id) => request("GET", `v1/runs/${part(id)}`),
	cancel: (id) => request("DELETE", `v1/runs/${part(id)}`),
	queue: (verb) => request("POST", `v1/queue/${verb}`),
	takes: (cursor) => request("GET", `v1/takes?limit=24${cursor ? `&cursor=${part(cursor)}` : ""}`),
	deleteTake: (id) => request("DELETE", `v1/takes/${part(id)}`),
	recipe: (id) => request("GET", `v1/takes/${part(id)}/graph`),
	import: (body) => request("POST", "v1/import", { body, timeout: 0 }),
	importWorkflow: (body) => request("POST", "v1/import/comfyui", { body, timeout: 0 }),
	upload: (body) =>
		request("POST", `v1/assets?name=${part(body.name.slice(-60))}`, { body, timeout: 0 }),
};

/** Where the bytes lie. @param {"assets"|"takes"} of @param {string} id */
export const bytesUrl = (of, id) => `v1/${of}/${part(id)}/bytes`;

/** @param {string} id @param {number|null} after */
export function eventsUrl(id, after) {
	const query = `?events=all&previews=1${after === null ? "" : `&after=${after}`}`;
	const url = new URL(`v1/runs/${part(id)}/events${query}`, document.baseURI);
	url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
	return url.href;
}

/** What went wrong, with its code. @param {any} error */
export const inWords = (error) =>
	error instanceof ApiError ? `${error.message} (${error.code})` : error.message;
