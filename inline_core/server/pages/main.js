/** The page: puts the parts together. */
/** @import {RunHead, Take} from "./types" */
import { api, onConnection } from "./api.js";
import { byId } from "./dom.js";
import { RunForm } from "./form.js";
import { Queue } from "./queue.js";
import { Recipes } from "./recipe.js";
import { RunView } from "./run.js";
import { showModels, Status } from "./status.js";
import { altOf, Gallery } from "./takes.js";
import { Viewer } from "./viewer.js";

/** @type {{files: any[], warnings: string[]}} */
let found = { files: [], warnings: [] };

const gallery = new Gallery((take) => viewer.open(take));
const viewer = new Viewer(gallery, {
	async reuse(take) {
		const recipe = await api.recipe(take.id).catch(() => null);
		if (recipe) recipes.load(recipe, altOf(take).slice(0, 80), recipe.warnings);
		// Its run is deleted: what the take itself tells.
		else form.fill(null, take.params);
	},
	startFrom(take) {
		form.image.set({ ref: "take", id: take.id, name: altOf(take).slice(0, 80) });
		byId("prompt").focus();
	},
});
const view = new RunView({
	finished() {
		queue.watched = null;
		status.poll();
	},
	take: (take) => gallery.add(take),
	open: (take) => viewer.open(take),
});
const queue = new Queue({ changed: followQueue, watch: (run) => watch(run.runId, run.meta, run.status) });
const form = new RunForm((runId, meta) => {
	if (!view.active) {
		watch(runId, meta);
		byId("stage").scrollIntoView({ block: "nearest" });
	}
	status.poll();
});
const recipes = new Recipes(form);
const status = new Status((health, changed) => {
	queue.setCounts(health.queue);
	if (changed.models) loadModels();
	if (changed.runs) gallery.load(null);
});

/** @param {string} runId @param {any} meta @param {string} [state] */
function watch(runId, meta, state) {
	queue.watched = runId;
	view.watch(runId, meta, state);
	queue.draw();
}

/** What runs unwatched is taken up: the next in line, or what runs after a reload. @param {RunHead[]} runs */
function followQueue(runs) {
	const mine = runs.find((run) => run.runId === queue.watched);
	if (mine) view.setPosition(mine.queuePosition, queue.paused);
	const next = runs.find((run) => run.status === "running") || runs[0];
	if (!view.active && next && next.runId !== view.runId) watch(next.runId, next.meta, next.status);
}

async function loadModels() {
	try {
		const [{ models }, files] = await Promise.all([api.models(), api.modelFiles()]);
		found = files;
		form.setModels(models);
		showModels(form.model, found);
	} catch {
		// Asked again with the next health.
		status.registry = "";
	}
}

byId("node").addEventListener("change", () => showModels(form.model, found));
onConnection((state, message) => status.connection(state, message));
status.poll();
