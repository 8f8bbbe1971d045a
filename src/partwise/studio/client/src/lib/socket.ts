export * from "./socket.svelte";
