// Login: user and password of the MQTT listener, or the key that `timestone console` prints.
import { html, useEffect, useState } from '../lib/html.js';
import { post, session } from '../lib/api.js';
import { href, useRoute } from '../lib/router.js';

/** Return a path of this origin to go to; anything else is the start page. @param {string | null} next */
export const safeNext = (next) => (next && /^\/(?![/\\])/.test(next) && !next.startsWith('/login') ? next : '/');

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const enter = async (/** @type {any} */ body) => {
    setBusy(true);
    try {
      const found = await post('login', body);
      session.token = found.token;
      location.replace(safeNext(params.get('next')));
    } catch (error) {
      setProblem(/** @type {any} */ (error).message);
      setBusy(false);
    }
  };
  const [key] = useState(() => location.hash.slice(1));
  useEffect(() => {
    if (!key) return;
    history.replaceState(null, '', location.pathname + location.search);
    enter({ key });
  }, []);
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    enter({ user: form.get('user'), password: form.get('password') });
  };
  return html`<div class="page-head"><h1 tabindex="-1">Timestone</h1></div>
    ${key && !problem ? html`<p class="lead" role="status">Logging in …</p>` : html`<section class="card"><div class="body">
      ${me && !me.can_login ? html`<p>This console has no users. Start it with <code>timestone console DIR</code>: it prints a link that logs in.</p>`
        : html`<form class="form" onSubmit=${submit}><label>User <input class="input" name="user" autocomplete="username" required autofocus /></label>
          <label>Password <input class="input" name="password" type="password" autocomplete="current-password" required /></label>
          <button class="button primary" disabled=${busy}>${busy ? 'Logging in …' : 'Log in'}</button></form>`}
      ${problem && html`<p class="state bad" role="alert">${problem}</p>`}</div></section>`}
    ${me && me.role !== 'none' && html`<p class="small muted section"><a href=${href('/')}>Continue without a login</a></p>`}`;
}
