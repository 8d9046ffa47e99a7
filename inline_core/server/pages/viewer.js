/** The dialog with one take: the picture, what made it, and what to do with it. */
/** @import {Take, ViewerHandlers} from "./types" */
import { api, bytesUrl, inWords } from "./api.js";
import { announce, byId, el, inBytes, inTime, setProblem } from "./dom.js";
import { altOf } from "./takes.js";

export class Viewer {
	/** @param {import("./takes.js").Gallery} gallery @param {ViewerHandlers} handlers */
	constructor(gallery, handlers) {
		this.gallery = gallery;
		this.take = null;
		this.dialog = byId("viewer");
		this.trash = byId("delete");
		const clicks = {
			close: () => this.dialog.close(),
			previous: () => this.step(-1),
			next: () => this.step(1),
			reuse: () => this.leave(handlers.reuse),
			"start-from": () => this.leave(handlers.startFrom),
			delete: () => this.remove(),
		};
		for (const [id, then] of Object.entries(clicks)) byId(id).addEventListener("click", then);
		this.trash.addEventListener("blur", () => this.arm(false));
		this.dialog.addEventListener("click", (event) => {
			if (event.target === this.dialog) this.dialog.close();
		});
		this.dialog.addEventListener("keydown", (event) => {
			if (event.target.matches("video, audio")) return;
			if (event.key === "ArrowLeft") this.step(-1);
			if (event.key === "ArrowRight") this.step(1);
		});
		this.dialog.addEventListener("close", () => {
			byId("viewer-media").replaceChildren();
			if (this.back) this.gallery.focus(this.take.id);
		});
	}

	open(take) {
		this.back = true;
		this.show(take);
		this.dialog.showModal();
		byId("close").focus();
	}

	show(take) {
		this.take = take;
		this.arm(false);
		setProblem(byId("viewer-problem"));
		const alt = altOf(take);
		const src = bytesUrl("takes", take.id);
		const { kind, width, height } = take;
		byId("viewer-media").replaceChildren(kind === "image"
			? el("img", { src, alt, width, height }) : el(kind, { src, controls: true, "aria-label": alt }));
		byId("viewer-prompt").textContent = alt;
		byId("download").href = src;
		byId("download").download = take.uri.split("/").pop();
		byId("start-from").hidden = kind !== "image";
		byId("previous").disabled = !this.gallery.neighbour(take.id, -1);
		byId("next").disabled = !this.gallery.neighbour(take.id, 1);
		byId("viewer-facts").replaceChildren(...facts(take));
	}

	step(step) {
		const other = this.gallery.neighbour(this.take.id, step);
		if (!other) return;
		this.show(other);
		announce(altOf(other));
		// A button that has just been disabled drops the focus.
		if (document.activeElement === document.body) byId("close").focus();
	}

	/** Close and go on elsewhere. */
	leave(then) {
		this.back = false;
		this.dialog.close();
		then(this.take);
	}

	arm(armed) {
		this.armed = armed;
		this.trash.classList.toggle("armed", armed);
		this.trash.textContent = armed ? "Really delete?" : "Delete";
	}

	/** The first press asks, the second deletes. */
	async remove() {
		if (!this.armed) {
			this.arm(true);
			announce("Press again to delete this take for good.");
			return;
		}
		const { id } = this.take;
		try {
			await api.deleteTake(id);
		} catch (error) {
			if (error.status !== 404 && error.status !== 410) {
				this.arm(false);
				setProblem(byId("viewer-problem"), inWords(error));
				return;
			}
		}
		this.take = this.gallery.neighbour(id, 1) || this.gallery.neighbour(id, -1) || {};
		this.gallery.remove(id);
		announce("The take is deleted.");
		this.dialog.close();
	}
}

/** What made a take, as terms and descriptions. @param {Take} take */
function facts(take) {
	const { prompt, seed, width, height, ...rest } = take.params;
	const rows = [
		["Seed", seed],
		["Size", take.width && `${take.width} × ${take.height}`],
		["Length", take.durationMs && inTime(take.durationMs)],
		...Object.entries(rest).map(([key, value]) =>
			[key.charAt(0).toUpperCase() + key.slice(1).replaceAll("_", " "), value]),
		["Made", new Date(take.createdAt).toLocaleString()],
		["File", inBytes(take.bytes)],
		["Run", take.runId],
		["Take", take.id],
	];
	return rows.filter(([, value]) => value !== undefined && value !== null && value !== "")
		.flatMap(([name, value]) => [
			el("dt", { text: name }),
			el("dd", { text: typeof value === "string" ? value : JSON.stringify(value) }),
		]);
}
