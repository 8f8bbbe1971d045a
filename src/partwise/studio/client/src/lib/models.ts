export * from "./models.svelte";
