export * from "./router.svelte";
