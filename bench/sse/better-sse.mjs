// better-sse behind node:http: GET /events?channel=N, POST /publish?channel=N. One process, as its documentation shows.
//   node better-sse.mjs PORT
import { createServer } from 'node:http'
import { createChannel, createSession } from 'better-sse'

const channels = new Map()
const channelOf = (url) => {
    const name = url.slice(url.indexOf('channel=') + 8)
    if (!channels.has(name)) channels.set(name, createChannel())
    return channels.get(name)
}

createServer(async (request, response) => {
    const channel = channelOf(request.url)
    if (request.method === 'GET') {
        channel.register(await createSession(request, response, { serializer: (text) => text, keepAlive: null }))
        return
    }
    let text = ''
    for await (const part of request) text += part
    channel.broadcast(text, 'change')
    response.writeHead(202, { 'Content-Length': 0 })
    response.end()
}).listen(Number(process.argv[2]), '127.0.0.1', 1024, () => console.log('ready'))
