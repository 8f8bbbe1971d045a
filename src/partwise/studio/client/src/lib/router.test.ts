import { expect, test } from "vitest";
import { canonical, requestName } from "./exported";
import { exportedFile, match, normal } from "./router";

test("a pattern finds its parameters, decoded", () => {
  expect(match("/lesson/:number", "/lesson/06.5")).toEqual({ number: "06.5" });
  expect(match("/runs/:name", "/runs/%E8%8E%8E%20x")).toEqual({ name: "莎 x" });
  expect(match("/", "/")).toEqual({});
});

test("what does not fit is no match, and a broken address does not throw", () => {
  expect(match("/lesson/:number", "/lesson")).toBeNull();
  expect(match("/lesson/:number", "/lesson/")).toBeNull();
  expect(match("/lesson/:number", "/lesson/06.5/x")).toBeNull();
  expect(match("/runs/:name", "/runs/%E8%8")).toBeNull();
});

test("a path has one spelling", () => {
  expect(normal("/labs/")).toBe("/labs");
  expect(normal("/")).toBe("/");
  expect(normal("")).toBe("/");
});

test("an export has a file a lesson and one for the contents", () => {
  expect(exportedFile("/")).toBe("./index.html");
  expect(exportedFile("/lesson/06.5")).toBe("./06.5.html");
  expect(exportedFile("/labs")).toBeNull();
});

test("equal requests have equal names", () => {
  expect(requestName("POST", "/api/trace", { b: [1, { y: 1, x: "a" }], a: null })).toBe(
    requestName("POST", "/api/trace", { a: null, b: [1, { x: "a", y: 1 }], c: undefined }),
  );
  expect(canonical({ b: 1, a: "中" })).toBe('{"a":"中","b":1}');
  expect(requestName("GET", "/api/state")).toBe("GET /api/state");
});
