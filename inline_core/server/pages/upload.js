/** The start image: chosen, dropped, pasted, or taken from a take. */
/** @import {Start} from "./types" */
import { api, bytesUrl, inWords } from "./api.js";
import { announce, byId, el, setProblem } from "./dom.js";

export class StartImage {
	/** @param {() => void} changed */
	constructor(changed) {
		this.root = byId("field-image");
		this.changed = changed;
		/** @type {Start|null} */
		this.value = null;
		this.turn = 0;
		this.input = byId("start-file");
		this.drop = byId("drop");
		this.input.addEventListener("change", () => this.upload(this.input.files[0]));
		this.thumb = byId("start-thumb");
		this.thumb.addEventListener("error", () => this.lost());
		byId("start-remove").addEventListener("click", () => {
			this.set(null);
			this.input.focus();
		});
		this.listen(byId("form"));
	}

	listen(form) {
		for (const type of ["dragenter", "dragover", "dragleave", "drop"]) {
			form.addEventListener(type, (event) => {
				if (this.root.hidden || !event.dataTransfer?.types.includes("Files")) return;
				event.preventDefault();
				const left = type === "dragleave" && !form.contains(event.relatedTarget);
				this.drop.classList.toggle("over", type !== "drop" && !left);
				if (type === "drop") this.upload(event.dataTransfer.files[0]);
			});
		}
		document.addEventListener("paste", (event) => {
			const file = [...(event.clipboardData?.files || [])].find((one) => one.type.startsWith("image/"));
			if (file && !this.root.hidden) this.upload(file);
		});
	}

	/** Upload a file and use it. */
	async upload(file) {
		if (!file) return;
		this.turn += 1;
		const mine = this.turn;
		this.problem();
		byId("start-name").textContent = `Uploading ${file.name}…`;
		try {
			const asset = await api.upload(file);
			if (mine !== this.turn) return;
			if (asset.kind !== "image") throw Error("This is not a picture.");
			this.set({ ref: "asset", id: asset.id, name: file.name });
			announce(`The start image ${file.name} is uploaded.`);
		} catch (error) {
			if (mine !== this.turn) return;
			this.draw();
			this.problem(inWords(error));
		} finally {
			this.input.value = "";
		}
	}

	set(value) {
		this.turn += 1;
		this.value = value;
		this.problem();
		this.draw();
		this.changed();
	}

	problem(text) {
		setProblem(byId("start-error"), text);
	}

	/** The picture is not on the server any more. */
	lost() {
		const name = this.value?.name;
		this.set(null);
		this.problem(`${name} is not on the server any more.`);
	}

	draw() {
		const { value } = this;
		byId("start-name").textContent = value?.name || "Choose, drop or paste a picture";
		byId("start-remove").hidden = this.thumb.hidden = !value;
		if (value) this.thumb.src = bytesUrl(`${value.ref}s`, value.id);
		else this.thumb.removeAttribute("src");
	}
}
