/** The events of one run over a websocket, which comes back by itself when it breaks. */
/** @import {StreamHandlers} from "./types" */
import { eventsUrl } from "./api.js";

const FIRST_DELAY_MS = 400;
const LONGEST_DELAY_MS = 8000;
const UNKNOWN_RUN = 4404;
const FINAL = ["run_done", "cancelled", "error", "done"];

export class RunStream {
	/** @param {string} runId @param {StreamHandlers} handlers */
	constructor(runId, handlers) {
		this.runId = runId;
		this.handlers = handlers;
		/** @type {number|null} */
		this.seq = null;
		this.delay = FIRST_DELAY_MS;
		this.ended = false;
		this.open();
	}

	open() {
		this.socket = new WebSocket(eventsUrl(this.runId, this.seq));
		this.socket.binaryType = "arraybuffer";
		this.socket.onmessage = ({ data }) => {
			if (this.ended) return;
			this.delay = FIRST_DELAY_MS;
			this.handlers.lost(false);
			if (typeof data === "string") this.text(JSON.parse(data));
			else this.binary(data);
		};
		this.socket.onclose = ({ code }) => {
			if (this.ended) return;
			if (code === UNKNOWN_RUN) {
				this.close();
				this.handlers.gone();
				return;
			}
			// The last frame has not come, so the stream is taken up again.
			this.handlers.lost(true);
			this.timer = setTimeout(() => this.open(), this.delay * (0.75 + Math.random() / 2));
			this.delay = Math.min(this.delay * 2, LONGEST_DELAY_MS);
		};
	}

	text(frame) {
		this.seq = frame.seq ?? this.seq;
		if (FINAL.includes(frame.type === "snapshot" ? frame.state.status : frame.type)) this.close();
		this.handlers.frame(frame);
	}

	/** Four bytes of length, a JSON header, a JPEG. */
	binary(data) {
		const start = 4 + new DataView(data).getUint32(0);
		const header = JSON.parse(new TextDecoder().decode(data.slice(4, start)));
		this.handlers.preview(header, new Blob([data.slice(start)], { type: header.mediaType }));
	}

	close() {
		this.ended = true;
		clearTimeout(this.timer);
		this.socket?.close();
	}
}
