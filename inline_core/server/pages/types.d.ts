/** Shapes of the /v1 interface, for the editor's type checker only: the page never loads this. */
export interface Param {
  key: string; label: string; widget: string; default: any; min?: number; max?: number;
  step?: number; options?: { value: string; label: string }[]; optionsFrom?: string;
  advanced?: boolean; kind: string;
}
export interface Port { id: string; label: string; kind: string; required: boolean }
export interface Descriptor {
  type: string; title: string; category: string; outputKind: string | null;
  inputs: Port[]; outputs: Port[]; params: Param[]; hidden?: boolean;
}
export interface Problem { code: string; message: string; nodeId?: string; port?: string; param?: string }
export interface Take {
  id: string; runId: string; nodeId: string; kind: "image" | "video" | "audio"; uri: string;
  bytes: number; width: number | null; height: number | null; durationMs?: number;
  params: Record<string, any>; provenance: Record<string, any>; createdAt: number;
}
export interface RunHead {
  runId: string; status: string; target: string; fraction: number; queuePosition: number | null;
  tags: string[]; meta: Record<string, any>;
  createdAt: number; startedAt: number | null; finishedAt: number | null;
  error: null | { code: string; message: string; nodeId: string | null; details?: object };
}
export interface Run extends RunHead {
  nodes: Record<string, any>; takes: Take[]; seeds: Record<string, number>; warnings: Problem[];
}
/** A graph that makes one picture again. */
export interface Recipe { graph: { nodes: any[] }; target?: string; targets?: string[] }
export interface WorkflowReport {
	complete: boolean; summary: string;
	nodes: { title: string; classType: string; state: string; reason: string | null; alternative: string | null; warnings: string[] }[];
	lines: { severity: string; message: string; nodeType: string | null }[];
	files: { category: string; name: string; present: boolean; url: string | null }[];
}
/** A picture of the server that a run starts from. */
export interface Start { ref: "asset" | "take"; id: string; name: string }
export interface Field {
  param: Param; root: HTMLElement; input: any;
  /** The value, or undefined to leave it to the server. */
  read(): any;
  write(value: any): void;
  problem(text?: string): void;
}
export interface Api {
  health(): Promise<any>;
  models(): Promise<{ registryVersion: string; models: Descriptor[] }>;
  modelFiles(): Promise<{ files: any[]; warnings: string[] }>;
  submit(json: object): Promise<{ runId: string; status: string }>;
  runs(query?: string): Promise<{ runs: RunHead[] }>;
  run(id: string): Promise<Run>;
  cancel(id: string): Promise<unknown>;
  queue(verb: "pause" | "resume"): Promise<{ paused: boolean }>;
  takes(cursor: string | null): Promise<{ takes: Take[]; nextCursor: string | null }>;
  deleteTake(id: string): Promise<null>;
  recipe(id: string): Promise<Recipe & { warnings: Problem[] }>;
  import(body: File): Promise<Recipe & { report: { warnings: Problem[] } }>;
  importWorkflow(body: File): Promise<{ graph: { nodes: any[] }; targets: string[]; report: WorkflowReport }>;
  upload(body: File): Promise<{ id: string; kind: string }>;
}
export type Listener = (state: "up" | "down" | "refused", message?: string) => void;
export interface RequestOptions { json?: object; body?: BodyInit; timeout?: number }
/** What the stage tells the page. */
export interface RunHandlers { finished(): void; take(take: Take): void; open(take: Take): void }
export interface StreamHandlers {
  frame(frame: any): void;
  preview(header: { step: number | null; mediaType: string }, jpeg: Blob): void;
  /** The line is broken (true), or works again. */
  lost(waiting: boolean): void;
  /** The server does not know the run. */
  gone(): void;
}
export interface QueueHandlers { changed(runs: RunHead[]): void; watch(run: RunHead): void }
export interface ViewerHandlers { reuse(take: Take): void; startFrom(take: Take): void }
export type News = (health: any, changed: { models: boolean; runs: boolean }) => void;
