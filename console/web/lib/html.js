// The one module that knows Preact and htm: pages import `html` and the hooks from here.
// Text is escaped by construction; tests/console/web bans the ways around it.
import * as hooks from '../vendor/hooks.js';
import htm from '../vendor/htm.js';
import * as preact from '../vendor/preact.js';

/** @template T @typedef {(value: T | ((old: T) => T)) => void} Setter */

export const Fragment = preact.Fragment;
/** @type {(node: any, parent: Element) => void} */
export const render = preact.render;
/** @type {<T>(first: T | (() => T)) => [T, Setter<T>]} */
export const useState = hooks.useState;
/** @type {<T>(first: T) => {current: T}} */
export const useRef = hooks.useRef;
/** @type {(run: () => void | (() => void), on?: any[]) => void} */
export const useEffect = hooks.useEffect;
/** @type {(run: () => void | (() => void), on?: any[]) => void} */
export const useLayoutEffect = hooks.useLayoutEffect;
/** @type {any} */
export const useErrorBoundary = hooks.useErrorBoundary;

/** Tagged template that makes virtual nodes. @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(preact.h);
