/** The gallery: takes, newest first, in pages. */
/** @import {Take} from "./types" */
import { api, bytesUrl, inWords } from "./api.js";
import { byId, el, setText } from "./dom.js";

/** What a take shows, in words. @param {Take} take */
export function altOf({ params, kind, nodeId }) {
	return String(params.prompt || "").trim() || `${kind} made by node ${nodeId}`;
}

export class Gallery {
	/** @param {(take: Take) => void} open */
	constructor(open) {
		this.open = open;
		/** @type {Take[]} */
		this.takes = [];
		/** @type {Map<string, HTMLElement>} */
		this.tiles = new Map();
		/** @type {string|null|undefined} */
		this.cursor = undefined;
		this.list = byId("gallery");
		this.button = byId("more");
		this.button.addEventListener("click", () => this.load(this.cursor || null));
	}

	/** Fetch the newest page (null), or the one at a cursor; what is known already stays. */
	async load(cursor) {
		this.button.disabled = true;
		try {
			const page = await api.takes(cursor);
			if (cursor || this.cursor === undefined) this.cursor = page.nextCursor;
			const fresh = page.takes.find((take) => !this.tiles.has(take.id));
			page.takes.forEach((take) => this.add(take));
			// The button that was pressed may go away: focus goes on to the first that came.
			if (cursor && fresh) this.focus(fresh.id);
			this.note();
		} catch (error) {
			setText(byId("takes-note"), inWords(error));
		}
		this.button.disabled = false;
	}

	/** Put a take at its place by age. */
	add(take) {
		if (this.tiles.has(take.id)) return;
		const older = this.takes.findIndex((other) => other.createdAt < take.createdAt);
		const index = older < 0 ? this.takes.length : older;
		const tile = this.tile(take);
		this.list.insertBefore(tile, this.list.children[index] || null);
		this.takes.splice(index, 0, take);
		this.tiles.set(take.id, tile);
		this.note();
	}

	/** Forget a take that is gone. */
	remove(id) {
		this.takes = this.takes.filter((take) => take.id !== id);
		// It stays known, so that a page on its way does not bring it back.
		this.tiles.get(id)?.remove();
		this.note();
	}

	/** The take before (-1) or after (+1) another. */
	neighbour(id, step) {
		return this.takes[this.takes.findIndex((take) => take.id === id) + step];
	}

	focus(id) {
		(this.tiles.get(id)?.querySelector("button") || byId("takes")).focus();
	}

	note() {
		this.button.hidden = !this.cursor;
		setText(byId("takes-note"), this.takes.length ? "" : "Nothing yet. What you make is kept here.");
	}

	tile(take) {
		const alt = altOf(take);
		const { kind, width, height } = take;
		const src = bytesUrl("takes", take.id);
		const media = kind === "image" ? el("img", { src, alt, loading: "lazy", decoding: "async", width, height })
			: kind === "video" ? el("video", { src, muted: true, preload: "metadata", tabindex: -1, "aria-hidden": "true" })
				: el("span", { class: "sound", text: "♪", "aria-hidden": "true" });
		const label = kind === "image" ? null : `${kind}: ${alt}`;
		return el("li", { "data-take": take.id }, el("button", {
			type: "button", class: "tile", title: alt, "aria-label": label, onclick: () => this.open(take),
		}, media));
	}
}
