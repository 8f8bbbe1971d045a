export * from "./progress.svelte";
