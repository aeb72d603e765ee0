// Writes tests/unit/gateway/jwt_vectors.def: tokens and keys made by another implementation (npm jose) and, where jose
// refuses to make what an attacker would, by node's crypto. Run in tests/ after `npm ci`: node auth/make_vectors.mjs
import crypto from 'node:crypto'
import fs from 'node:fs'
import * as jose from 'jose'

const now = 1796000000
const claims = { sub: 'u1', scopes: ['acme', 'globex'], iat: now - 10, exp: now + 300 }

const keys = [] // [name, kind, text]
const vectors = [] // [name, key, rules, verdict, scopes, token]

const b64 = (value) => Buffer.from(value).toString('base64url')
const json = (value) => b64(JSON.stringify(value))
const vector = (name, key, verdict, token, { rules = 'PLAIN', scopes = verdict === 'VALID' ? 'acme,globex' : '' } = {}) =>
  vectors.push([name, key, rules, verdict, scopes, token])

// ---- keys ----

const secretText = 'a secret of forty characters, not fewer!'
const secret = new TextEncoder().encode(secretText)
const pair = (alg) => jose.generateKeyPair(alg, { extractable: true })
const rsa = await pair('RS256')
const rsaOther = await pair('RS256')
const ec = await pair('ES256')
const ed = await pair('EdDSA')
const rsaPem = await jose.exportSPKI(rsa.publicKey)
const weakRsa = crypto.generateKeyPairSync('rsa', { modulusLength: 1024 })
const jwk = async (key, more) => ({ ...(await jose.exportJWK(key)), ...more })

const set = {
  keys: [
    await jwk(rsa.publicKey, { kid: 'rsa', alg: 'RS256', use: 'sig' }),
    await jwk(rsaOther.publicKey, { kid: 'enc', use: 'enc' }),
    await jwk(ec.publicKey, { kid: 'ec', key_ops: ['verify'] }),
    await jwk(ed.publicKey, { kid: 'ed', alg: 'EdDSA' }),
    { kty: 'oct', kid: 'oct', k: b64(secret) },
    { kty: 'oct', kid: 'short', k: b64('short') },
    { ...weakRsa.publicKey.export({ format: 'jwk' }), kid: 'weak' },
    { ...(await jose.exportJWK(ec.publicKey)), kid: 'off', x: b64(Buffer.alloc(32, 7)) },
    { kty: 'EC', crv: 'secp256k1', kid: 'k1', x: b64(Buffer.alloc(32, 1)), y: b64(Buffer.alloc(32, 1)) },
    { kty: 'strange', kid: 'strange' },
  ],
}
keys.push(['HMAC', 'SECRET', secretText])
keys.push(['RSA', 'PEM', rsaPem])
keys.push(['EC', 'PEM', await jose.exportSPKI(ec.publicKey)])
keys.push(['ED', 'PEM', await jose.exportSPKI(ed.publicKey)])
keys.push(['ALL', 'PEM', [rsaPem, await jose.exportSPKI(ec.publicKey), await jose.exportSPKI(ed.publicKey)].join('\n')])
keys.push(['SET', 'JWKS', JSON.stringify(set)])
keys.push(['ROTATED', 'JWKS', JSON.stringify({ keys: [await jwk(rsaOther.publicKey, { kid: 'next' })] })])

// ---- signing ----

const sign = (key, header, payload = claims) => new jose.SignJWT(payload).setProtectedHeader(header).sign(key)
// What jose would not make: any bytes as header and payload.
const hmac = (key, header, payload) => {
  const text = `${b64(header)}.${b64(payload)}`
  return `${text}.${crypto.createHmac('sha256', key).update(text).digest('base64url')}`
}
const hs = (payload) => sign(secret, { alg: 'HS256' }, payload)
const ok = await hs(claims)

vector('hs256', 'HMAC', 'VALID', ok)
vector('rs256', 'RSA', 'VALID', await sign(rsa.privateKey, { alg: 'RS256' }))
vector('es256', 'EC', 'VALID', await sign(ec.privateKey, { alg: 'ES256' }))
vector('eddsa', 'ED', 'VALID', await sign(ed.privateKey, { alg: 'EdDSA' }))
vector('ed25519_by_its_new_name', 'ED', 'VALID', await sign(ed.privateKey, { alg: 'Ed25519' }))
vector('one_pem_with_three_keys', 'ALL', 'VALID', await sign(ec.privateKey, { alg: 'ES256' }))
vector('a_kid_means_nothing_without_a_set', 'RSA', 'VALID', await sign(rsa.privateKey, { alg: 'RS256', kid: 'any' }))
vector('set_rs256', 'SET', 'VALID', await sign(rsa.privateKey, { alg: 'RS256', kid: 'rsa' }))
vector('set_es256', 'SET', 'VALID', await sign(ec.privateKey, { alg: 'ES256', kid: 'ec', typ: 'at+jwt' }))
vector('set_eddsa', 'SET', 'VALID', await sign(ed.privateKey, { alg: 'EdDSA', kid: 'ed' }))
vector('set_hs256', 'SET', 'VALID', await sign(secret, { alg: 'HS256', kid: 'oct' }))
vector('set_without_a_kid', 'SET', 'VALID', await sign(ec.privateKey, { alg: 'ES256' }))

// ---- keys that are not the one ----

vector('another_secret', 'HMAC', 'REFUSED', await sign(crypto.randomBytes(40), { alg: 'HS256' }))
vector('another_rsa_key', 'RSA', 'REFUSED', await sign(rsaOther.privateKey, { alg: 'RS256' }))
vector('set_after_a_rotation', 'ROTATED', 'UNKNOWN_KEY', await sign(rsa.privateKey, { alg: 'RS256', kid: 'rsa' }))
vector('set_unnamed_after_a_rotation', 'ROTATED', 'UNKNOWN_KEY', await sign(rsa.privateKey, { alg: 'RS256' }))
vector('kid_of_another_key', 'SET', 'REFUSED', await sign(rsaOther.privateKey, { alg: 'RS256', kid: 'rsa' }))
vector('kid_of_an_encryption_key', 'SET', 'UNKNOWN_KEY', await sign(rsaOther.privateKey, { alg: 'RS256', kid: 'enc' }))
vector('kid_is_a_path', 'SET', 'UNKNOWN_KEY', await sign(crypto.randomBytes(40), { alg: 'HS256', kid: '../../dev/null' }))
vector('kid_is_sql', 'SET', 'UNKNOWN_KEY', await sign(crypto.randomBytes(40), { alg: 'HS256', kid: "x' or '1'='1" }))
vector('kid_is_empty', 'SET', 'UNKNOWN_KEY', await sign(rsa.privateKey, { alg: 'RS256', kid: '' }))
vector('kid_is_a_number', 'SET', 'REFUSED', hmac(secret, '{"alg":"HS256","kid":7}', JSON.stringify(claims)))
vector('kid_of_a_short_secret', 'SET', 'UNKNOWN_KEY', hmac('short', '{"alg":"HS256","kid":"short"}', JSON.stringify(claims)))
vector('kid_of_a_weak_key', 'SET', 'UNKNOWN_KEY', (() => {
  const text = `${json({ alg: 'RS256', kid: 'weak' })}.${json(claims)}`
  return `${text}.${crypto.sign('sha256', Buffer.from(text), weakRsa.privateKey).toString('base64url')}`
})())
vector('a_key_in_the_header', 'SET', 'UNKNOWN_KEY', await sign(rsaOther.privateKey, {
  alg: 'RS256', kid: 'mine', jwk: await jose.exportJWK(rsaOther.publicKey),
}))
vector('a_key_in_the_header_without_a_kid', 'RSA', 'REFUSED', await sign(rsaOther.privateKey, {
  alg: 'RS256', jwk: await jose.exportJWK(rsaOther.publicKey), jku: 'https://attacker.example/jwks',
}))

// ---- algorithms ----

const none = (alg) => `${json({ alg })}.${json(claims)}.`
vector('none', 'HMAC', 'REFUSED', new jose.UnsecuredJWT(claims).encode())
vector('none_for_rsa', 'RSA', 'REFUSED', none('none'))
vector('none_in_capitals', 'RSA', 'REFUSED', none('NONE'))
vector('none_mixed', 'SET', 'REFUSED', none('nOnE'))
vector('none_with_a_signature', 'HMAC', 'REFUSED', hmac(secret, '{"alg":"none"}', JSON.stringify(claims)))
vector('no_alg', 'HMAC', 'REFUSED', hmac(secret, '{"typ":"JWT"}', JSON.stringify(claims)))
vector('alg_is_null', 'HMAC', 'REFUSED', hmac(secret, '{"alg":null}', JSON.stringify(claims)))
vector('alg_in_small_letters', 'HMAC', 'REFUSED', hmac(secret, '{"alg":"hs256"}', JSON.stringify(claims)))
vector('no_signature', 'RSA', 'REFUSED', none('RS256'))
vector('no_signature_hs256', 'HMAC', 'REFUSED', none('HS256'))
// The confusion: the public key, which everybody has, as the secret of an HMAC.
const confused = (key, header = '{"alg":"HS256"}') => hmac(key, header, JSON.stringify(claims))
vector('hs256_with_the_public_pem', 'RSA', 'REFUSED', confused(rsaPem))
vector('hs256_with_the_trimmed_pem', 'RSA', 'REFUSED', confused(rsaPem.trim()))
vector('hs256_with_the_public_der', 'RSA', 'REFUSED', confused(crypto.createPublicKey(rsaPem).export({ type: 'spki', format: 'der' })))
vector('hs256_with_the_set_s_rsa_key', 'SET', 'REFUSED', confused(rsaPem, '{"alg":"HS256","kid":"rsa"}'))
vector('hs256_with_the_modulus', 'SET', 'REFUSED', confused(Buffer.from(set.keys[0].n, 'base64url'), '{"alg":"HS256","kid":"rsa"}'))
vector('hs256_with_the_ed25519_key', 'ED', 'REFUSED', confused(Buffer.from(set.keys[3].x, 'base64url')))
vector('hs256_with_an_empty_secret', 'RSA', 'REFUSED', confused(''))
vector('hs512', 'HMAC', 'REFUSED', await sign(secret, { alg: 'HS512' }))
const pss = await jose.importPKCS8(await jose.exportPKCS8(rsa.privateKey), 'PS256')
vector('ps256', 'RSA', 'REFUSED', await sign(pss, { alg: 'PS256' }))
const pssSignature = (await sign(pss, { alg: 'PS256' })).split('.')[2]
vector('pss_that_says_rs256', 'RSA', 'REFUSED', `${json({ alg: 'RS256' })}.${json(claims)}.${pssSignature}`)
vector('es384', 'EC', 'REFUSED', await sign((await pair('ES384')).privateKey, { alg: 'ES384' }))
vector('es256_for_an_rsa_key', 'RSA', 'REFUSED', await sign(ec.privateKey, { alg: 'ES256' }))
const esText = `${json({ alg: 'ES256' })}.${json(claims)}`
vector('es256_of_zeros', 'EC', 'REFUSED', `${esText}.${b64(Buffer.alloc(64))}`)
vector('es256_of_nothing', 'EC', 'REFUSED', `${esText}.`)
vector('es256_too_long', 'EC', 'REFUSED', `${await sign(ec.privateKey, { alg: 'ES256' })}AA`)
vector('es256_in_der', 'EC', 'REFUSED', `${esText}.${crypto.sign('sha256', Buffer.from(esText), ec.privateKey instanceof crypto.KeyObject
  ? ec.privateKey : crypto.createPrivateKey(await jose.exportPKCS8(ec.privateKey))).toString('base64url')}`)

// ---- form ----

const parts = ok.split('.')
const signed = (payload, header = '{"alg":"HS256"}') => hmac(secret, header, payload)
vector('two_parts', 'HMAC', 'REFUSED', parts.slice(0, 2).join('.'))
vector('four_parts', 'HMAC', 'REFUSED', `${ok}.`)
vector('encrypted', 'HMAC', 'REFUSED', await new jose.EncryptJWT(claims).setProtectedHeader({ alg: 'dir', enc: 'A256GCM' }).encrypt(secret.slice(0, 32)))
vector('padded', 'HMAC', 'REFUSED', `${ok}=`)
vector('blank_at_the_end', 'HMAC', 'REFUSED', `${ok} `)
vector('plain_base64', 'HMAC', 'REFUSED', `${parts[0]}.${parts[1]}.${Buffer.alloc(32, 0xfb).toString('base64')}`)
// The last character's unused bits are set: other text, same bytes.
const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
vector('unused_bits', 'HMAC', 'REFUSED', ok.slice(0, -1) + alphabet[alphabet.indexOf(ok.at(-1)) ^ 1])
vector('a_changed_payload', 'HMAC', 'REFUSED', `${parts[0]}.${json({ ...claims, scopes: ['other'] })}.${parts[2]}`)
vector('scopes_twice', 'HMAC', 'REFUSED', signed(`{"scopes":["acme"],"exp":${now + 300},"scopes":["globex"]}`))
vector('scopes_twice_by_an_escape', 'HMAC', 'REFUSED', signed(`{"scopes":["acme"],"exp":${now + 300},"scope\\u0073":["globex"]}`))
vector('exp_twice', 'HMAC', 'REFUSED', signed(`{"scopes":["acme"],"exp":1,"exp":${now + 300}}`))
vector('alg_twice', 'HMAC', 'REFUSED', signed(JSON.stringify(claims), '{"alg":"none","alg":"HS256"}'))
vector('kid_twice', 'SET', 'REFUSED', signed(JSON.stringify(claims), '{"alg":"HS256","kid":"x","kid":"oct"}'))
vector('crit', 'HMAC', 'REFUSED', signed(JSON.stringify(claims), '{"alg":"HS256","crit":["exp"],"exp":1}'))
vector('unencoded', 'HMAC', 'REFUSED', signed(JSON.stringify(claims), '{"alg":"HS256","b64":false,"crit":["b64"]}'))
vector('payload_is_a_list', 'HMAC', 'REFUSED', signed(`[${JSON.stringify(claims)}]`))
vector('payload_is_not_utf8', 'HMAC', 'REFUSED', signed(Buffer.concat([Buffer.from(`{"exp":${now + 300},"scopes":["`), Buffer.from([0xff]), Buffer.from('"]}')])))
vector('payload_with_single_quotes', 'HMAC', 'REFUSED', signed(`{'exp':${now + 300},"scopes":["acme"]}`))
vector('payload_with_a_comment', 'HMAC', 'REFUSED', signed(`{"exp":${now + 300}/**/,"scopes":["acme"]}`))
vector('payload_with_more_behind', 'HMAC', 'REFUSED', signed(`${JSON.stringify(claims)}{}`))
vector('payload_with_a_nul', 'HMAC', 'REFUSED', signed(`{"exp":${now + 300},"scopes":["acme\\u0000x"]}`))
vector('payload_with_a_lone_surrogate', 'HMAC', 'REFUSED', signed(`{"exp":${now + 300},"scopes":["\\ud800"]}`))
vector('payload_is_deep', 'HMAC', 'REFUSED', signed(`{"exp":${now + 300},"x":${'['.repeat(1000)}${']'.repeat(1000)}}`))
vector('payload_is_empty', 'HMAC', 'REFUSED', signed(''))
vector('huge', 'HMAC', 'REFUSED', await hs({ ...claims, x: 'x'.repeat(8192) }))
vector('large', 'HMAC', 'VALID', await hs({ ...claims, x: 'x'.repeat(5000) }))

// ---- dates ----

vector('no_exp', 'HMAC', 'REFUSED', await hs({ scopes: ['acme'] }))
vector('exp_is_text', 'HMAC', 'REFUSED', signed(`{"scopes":["acme"],"exp":"${now + 300}"}`))
vector('exp_is_null', 'HMAC', 'REFUSED', signed('{"scopes":["acme"],"exp":null}'))
vector('exp_is_infinite', 'HMAC', 'REFUSED', signed('{"scopes":["acme"],"exp":1e999}'))
vector('exp_is_nan', 'HMAC', 'REFUSED', signed('{"scopes":["acme"],"exp":NaN}'))
vector('exp_with_a_fraction', 'HMAC', 'VALID', signed(`{"scopes":["acme"],"exp":${now + 300}.5}`), { scopes: 'acme' })
vector('expired', 'HMAC', 'REFUSED', await hs({ ...claims, exp: now - 6 }))
vector('expired_within_the_leeway', 'HMAC', 'VALID', await hs({ ...claims, exp: now - 4 }))
vector('expired_just_now', 'HMAC', 'REFUSED', await hs({ ...claims, exp: now - 5 }))
vector('not_yet', 'HMAC', 'REFUSED', await hs({ ...claims, nbf: now + 6 }))
vector('not_yet_within_the_leeway', 'HMAC', 'VALID', await hs({ ...claims, nbf: now + 4 }))
vector('nbf_is_text', 'HMAC', 'REFUSED', signed(`{"scopes":["acme"],"exp":${now + 300},"nbf":"soon"}`))

// ---- parties: rules PARTIES want audience `stream` of issuer `https://id.example` ----

const parties = { rules: 'PARTIES' }
const iss = 'https://id.example'
vector('aud_that_nobody_asked_for', 'HMAC', 'REFUSED', await hs({ ...claims, aud: 'stream' }))
vector('aud_and_iss', 'HMAC', 'VALID', await hs({ ...claims, aud: 'stream', iss }), parties)
vector('aud_in_a_list', 'HMAC', 'VALID', await hs({ ...claims, aud: ['other', 'stream'], iss }), parties)
vector('aud_missing', 'HMAC', 'REFUSED', await hs({ ...claims, iss }), parties)
vector('aud_of_another', 'HMAC', 'REFUSED', await hs({ ...claims, aud: 'streams', iss }), parties)
vector('aud_is_an_object', 'HMAC', 'REFUSED', await hs({ ...claims, aud: { stream: true }, iss }), parties)
vector('iss_missing', 'HMAC', 'REFUSED', await hs({ ...claims, aud: 'stream' }), parties)
vector('iss_of_another', 'HMAC', 'REFUSED', await hs({ ...claims, aud: 'stream', iss: `${iss}/` }), parties)

// ---- scopes ----

const long = 'é'.repeat(129) // 258 bytes
const scoped = async (name, value, scopes, more = {}) =>
  vector(name, 'HMAC', 'VALID', await hs({ exp: now + 300, ...value }), { scopes, ...more })
await scoped('scope_as_text', { scopes: 'acme globex' }, 'acme globex')
await scoped('scopes_as_numbers', { scopes: [7, 42] }, '7,42')
await scoped('scope_as_a_number', { scopes: 42 }, '42')
await scoped('scopes_missing', {}, '')
await scoped('scopes_null', { scopes: null }, '')
await scoped('scopes_empty', { scopes: [] }, '')
await scoped('scope_empty', { scopes: [''] }, '')
await scoped('scope_given_twice', { scopes: ['acme', 'acme'] }, 'acme')
await scoped('scope_star_is_none', { scopes: '*' }, '')
await scoped('scope_star_among_others', { scopes: ['*', 'acme'] }, 'acme')
await scoped('scope_star_allowed', { scopes: ['*', 'acme'] }, '*', { rules: 'EVERY' })
await scoped('scope_of_256_bytes', { scopes: 'x'.repeat(256) }, 'x'.repeat(256))
await scoped('scope_of_258_bytes', { scopes: long }, `sha256:${crypto.createHash('sha256').update(long).digest('hex')}`)
await scoped('scope_by_pointer', { app: { 'a/b': { tenant: 'acme' } } }, 'acme', { rules: 'POINTER' })
await scoped('scope_by_pointer_missing', { app: 'acme' }, '', { rules: 'POINTER' })
vector('scopes_are_an_object', 'HMAC', 'REFUSED', await hs({ exp: now + 300, scopes: { acme: true } }))
vector('scopes_are_true', 'HMAC', 'REFUSED', await hs({ exp: now + 300, scopes: true }))
vector('scopes_with_a_list', 'HMAC', 'REFUSED', await hs({ exp: now + 300, scopes: ['acme', ['globex']] }))
vector('scopes_with_a_fraction', 'HMAC', 'REFUSED', signed(`{"exp":${now + 300},"scopes":[1.0]}`))
vector('too_many_scopes', 'HMAC', 'REFUSED', await hs({ exp: now + 300, scopes: Array.from({ length: 1100 }, (_, i) => i) }))

// ---- out ----

const c = (text) => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`
const lines = [
  '// Made by tests/auth/make_vectors.mjs with npm jose. KEYS(name, kind, text) VECTOR(name, keys, rules, verdict, scopes, token)',
  '// clang-format off',
  `NOW(${now})`,
  ...keys.map(([name, kind, text]) => `KEYS(${name}, ${kind}, ${c(text)})`),
  ...vectors.map(([name, key, rules, verdict, scopes, token]) =>
    `VECTOR(${name}, ${key}, ${rules}, ${verdict}, ${c(scopes)}, ${c(token)})`),
]
fs.writeFileSync(new URL('../unit/gateway/jwt_vectors.def', import.meta.url), `${lines.join('\n')}\n`)
console.log(`${vectors.length} tokens`)
