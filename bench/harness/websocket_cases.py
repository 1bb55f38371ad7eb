"""WebSocket cases (RFC 6455, RFC 7692) through a proxy, after the groups of the Autobahn test suite.

A program: `websocket_cases.py SERVER_PORT PROXY_PORT` serves an echo with the package `websockets`. It sends the bytes of
each case to the server and to the proxy in front of it, over HTTP/1.1 and over HTTP/2 (RFC 8441, by the package `h2`), and
compares what comes back: a proxy is transparent if all are equal. Prints `pass NAME` or `FAIL NAME: DETAIL` for each case.
"""

import asyncio
import base64
import logging
import os
import struct
import sys

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import websockets.asyncio.client
import websockets.asyncio.server

CASE_LIMIT_S = 20.0
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
# Around the limits of the length's three forms (RFC 6455, section 5.2).
LENGTHS = (0, 1, 125, 126, 127, 128, 65_535, 65_536, 1 << 20)
CODES = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
INVALID_CODES = (0, 999, 1004, 1005, 1006, 1016, 2999, 5000)
KEEP_BYTES = 200
FIN = 0x80


def frame(opcode, payload=b"", fin=True, reserved=0, is_masked=True):
    head = bytes([(fin << 7) | (reserved << 4) | opcode])
    mask_bit = is_masked << 7
    if len(payload) < 126:
        head += bytes([mask_bit | len(payload)])
    elif len(payload) < 65_536:
        head += bytes([mask_bit | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([mask_bit | 127]) + struct.pack("!Q", len(payload))
    if not is_masked:
        return head + payload
    mask = b"\x12\x34\x56\x78"
    mask_all = (mask * (len(payload) // 4 + 1))[: len(payload)]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask_all, "big")
    return head + mask + masked.to_bytes(len(payload), "big")


def close(code=1000, reason=b""):
    return frame(CLOSE, struct.pack("!H", code) + reason)


def reply(opcode, payload=b""):
    return frame(opcode, payload, is_masked=False)


def cases():
    """Name, bytes to send, the size of the pieces in which they are sent (0: at once), and the bytes that come back.

    With bytes that come back, the case closes after them. Without (`None`), the server closes.
    """
    for length in LENGTHS:
        for opcode, name in ((TEXT, "text"), (BINARY, "binary")):
            yield f"1 {name} of {length} bytes", frame(opcode, b"*" * length), 0, reply(opcode, b"*" * length)
    yield "1 text of 65536 bytes in pieces of 997", frame(TEXT, b"*" * 65_536), 997, reply(TEXT, b"*" * 65_536)
    for length in (0, 4, 125):
        yield f"2 ping of {length} bytes", frame(PING, b"p" * length), 0, reply(PONG, b"p" * length)
    yield "2 ping of 126 bytes", frame(PING, b"p" * 126), 0, None
    yield "2 ping in pieces of 1", frame(PING, b"payload"), 1, reply(PONG, b"payload")
    yield "2 unsolicited pong", frame(PONG, b"payload"), 0, b""
    pings = [b"%d" % nth for nth in range(10)]
    yield "2 ten pings", b"".join(frame(PING, text) for text in pings), 0, b"".join(reply(PONG, text) for text in pings)
    for reserved in range(1, 8):
        yield f"3 reserved bits {reserved:03b}", frame(TEXT, b"x", reserved=reserved), 0, None
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield f"4 reserved opcode {opcode}", frame(opcode, b"x"), 0, None
    parts, whole = [frame(TEXT, b"first ", fin=False), frame(CONTINUATION, b"second")], reply(TEXT, b"first second")
    yield "5 fragments", b"".join(parts), 0, whole
    yield "5 fragments, byte by byte", b"".join(parts), 1, whole
    yield "5 ping between fragments", parts[0] + frame(PING, b"between") + parts[1], 0, reply(PONG, b"between") + whole
    yield "5 continuation without a beginning", parts[1], 0, None
    yield "5 text within fragments", parts[0] + frame(TEXT, b"x"), 0, None
    yield "5 fragmented ping", frame(PING, b"x", fin=False), 0, None
    fragments = frame(TEXT, b"x", fin=False) + frame(CONTINUATION, b"x", fin=False) * 998 + frame(CONTINUATION, b"x")
    yield "5 a thousand fragments", fragments, 0, reply(TEXT, b"x" * 1000)
    valid = "κόσμε 🎈".encode()
    yield "6 UTF-8", frame(TEXT, valid), 0, reply(TEXT, valid)
    for name, text in (("invalid", b"\xce\xba\xff"), ("surrogate", b"\xed\xa0\x80"), ("overlong", b"\xc0\xaf")):
        yield f"6 UTF-8, {name}", frame(TEXT, text), 0, None
    for code in CODES:
        yield f"7 close {code}", close(code, b"reason"), 0, None
    for code in INVALID_CODES:
        yield f"7 close {code}, invalid", close(code), 0, None
    yield "7 close without a code", frame(CLOSE), 0, None
    yield "7 close of one byte", frame(CLOSE, b"\x03"), 0, None
    yield "7 close with invalid UTF-8", close(1000, b"\xff"), 0, None
    yield "7 message after close", close() + frame(TEXT, b"late"), 0, None
    yield "7 unmasked", frame(TEXT, b"x", is_masked=False), 0, None
    for mebi in (4, 16):
        yield f"9 binary of {mebi} MiB", frame(BINARY, b"*" * (mebi << 20)), 0, reply(BINARY, b"*" * (mebi << 20))
    yield "9 text of 1 MiB in pieces of 1300", frame(TEXT, b"*" * (1 << 20)), 1300, reply(TEXT, b"*" * (1 << 20))


async def open_http1(port, headers):
    """Opens a WebSocket; returns the lines of its response, a reader and a writer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 25)
    key = base64.b64encode(os.urandom(16)).decode()
    handshake = (
        f"GET /chat HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        f"sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n{headers}\r\n"
    )
    writer.write(handshake.encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    return [line for line in head if line], reader, writer


async def open_http2(port, headers):
    """The same on the stream of an HTTP/2 connection."""
    stream = Http2Stream(*await asyncio.open_connection("127.0.0.1", port))
    pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "h"), (":path", "/chat")]
    fields = [tuple(line.split(": ", 1)) for line in headers.splitlines()]
    head = await stream.open(pseudo + [("sec-websocket-version", "13")] + fields)
    # In place of the status line and the fields of HTTP/1.1.
    upgraded = ["http/1.1 101 switching protocols", "connection: upgrade", "upgrade: websocket"]
    lines = [f"{name}: {value}" for name, value in head]
    return [*upgraded, *lines[1:]] if lines[0] == ":status: 200" else lines, stream, stream


class Http2Stream:
    """The only stream of an HTTP/2 connection, with the methods of a reader and a writer."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.head, self.received, self.unsent = None, bytearray(), bytearray()
        self.has_websockets = self.is_ended = False
        self.changed = asyncio.Event()
        self.connection.initiate_connection()
        self.flush()
        self.receiving = asyncio.create_task(self.receive())

    async def open(self, fields):
        await self.until(lambda: self.has_websockets)
        self.connection.send_headers(1, fields)
        self.flush()
        await self.until(lambda: self.head is not None)
        return self.head

    async def receive(self):
        while data := await self.reader.read(1 << 16):
            for event in self.connection.receive_data(data):
                match event:
                    case h2.events.RemoteSettingsChanged(changed_settings=settings):
                        self.has_websockets |= h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL in settings
                    case h2.events.ResponseReceived(headers=head):
                        self.head = head
                    case h2.events.DataReceived(data=data, flow_controlled_length=length):
                        self.received += data
                        self.connection.acknowledge_received_data(length, 1)
                    case h2.events.StreamEnded() | h2.events.StreamReset():
                        self.is_ended = True
            self.send()
        self.is_ended = True
        self.changed.set()

    def send(self):
        """Sends what the windows allow."""
        while self.unsent and not self.is_ended:
            length = min(self.connection.local_flow_control_window(1), self.connection.max_outbound_frame_size, len(self.unsent))
            if length == 0:
                break
            self.connection.send_data(1, bytes(self.unsent[:length]))
            del self.unsent[:length]
        self.flush()
        self.changed.set()

    def flush(self):
        self.writer.write(self.connection.data_to_send())

    async def until(self, is_done):
        while not is_done():
            if self.is_ended:
                raise ConnectionResetError("the stream or its connection ended")
            self.changed.clear()
            await self.changed.wait()

    def write(self, data):
        self.unsent += data
        self.send()

    async def drain(self):
        await self.until(lambda: not self.unsent)

    async def readexactly(self, length):
        await self.until(lambda: len(self.received) >= length)
        data = bytes(self.received[:length])
        del self.received[:length]
        return data

    async def read(self):
        """All until the end of the stream."""
        while not self.is_ended:
            self.changed.clear()
            await self.changed.wait()
        return bytes(self.received)

    def close(self):
        self.receiving.cancel()
        self.writer.close()


async def exchange(open_websocket, port, sent, piece, expected, headers):
    """Sends the bytes after a handshake; returns the response of the handshake, and all that follows."""
    head, reader, writer = await open_websocket(port, headers)

    async def send():
        size = piece or len(sent) or 1
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await writer.drain()

    sending = asyncio.create_task(send())
    received = b""
    if expected is not None:
        received = await reader.readexactly(len(expected))
        writer.write(close())
    # A server that closes early resets the connection when more bytes come; what it sent before counts.
    try:
        received += await reader.read()
    except ConnectionResetError:
        pass
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    writer.close()
    varying = ("date:", "sec-websocket-accept:")
    return [line.lower() for line in head if not line.lower().startswith(varying)], received


def shorten(outcome):
    head, received = outcome
    return f"{head}, {len(received)} bytes {received[:KEEP_BYTES]!r}"


async def compare(ports, name, sent, piece, expected, headers=""):
    server, proxy = ports
    direct = None
    for open_websocket, port, case in ((open_http1, server, name), (open_http1, proxy, name), (open_http2, proxy, f"{name}, over HTTP/2")):
        try:
            exchanged = exchange(open_websocket, port, sent, piece, expected, headers)
            outcome = await asyncio.wait_for(exchanged, CASE_LIMIT_S)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, h2.exceptions.H2Error) as error:
            print(f"FAIL {case}: port {port}: {error!r}")
            continue
        if port == server:
            direct = outcome
            continue
        if direct is None:
            continue
        (head, received), (proxied_head, proxied) = direct, outcome
        # Header fields may come in another order.
        is_equal = sorted(head) == sorted(proxied_head) and received == proxied
        # A connection ends with a close frame, also if it is the server that closes.
        is_equal &= received.startswith(expected or b"") and received[len(expected or b"")] == FIN | CLOSE
        print(f"pass {case}" if is_equal else f"FAIL {case}: without {shorten(direct)}, with {shorten(outcome)}")


async def compressed(proxy):
    """Messages with permessage-deflate, between two ends that negotiate it through the proxy."""
    address = f"ws://127.0.0.1:{proxy}/chat"
    async with websockets.asyncio.client.connect(address, max_size=None, subprotocols=["b"]) as socket:
        names = [extension.name for extension in socket.protocol.extensions]
        print("pass 12 negotiated" if names == ["permessage-deflate"] and socket.subprotocol == "b" else f"FAIL 12 negotiated: {names}, {socket.subprotocol}")
        for length in (0, 16, 1_000, 100_000, 5_000_000):
            text = ("compress me " * (length // 12 + 1))[:length]
            await socket.send(text)
            is_equal = await asyncio.wait_for(socket.recv(), CASE_LIMIT_S) == text
            print(f"{'pass' if is_equal else 'FAIL'} 12 compressed text of {length} characters")


async def main():
    server_port, proxy_port = map(int, sys.argv[1:])
    # The server logs each of the errors that the cases want.
    logging.disable()

    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    def select(_connection, offered):
        return "b" if "b" in offered else None

    options = {"max_size": None, "ping_interval": None, "select_subprotocol": select}
    async with websockets.asyncio.server.serve(echo, "127.0.0.1", server_port, **options):
        ports = (server_port, proxy_port)
        for name, sent, piece, expected in cases():
            await compare(ports, name, sent, piece, expected)
        await compare(ports, "0 subprotocol", b"", 0, b"", "sec-websocket-protocol: x, b\r\n")
        await compare(ports, "0 unknown extension", b"", 0, b"", "sec-websocket-extensions: x-other\r\n")
        await compressed(proxy_port)


if __name__ == "__main__":
    asyncio.run(main())
