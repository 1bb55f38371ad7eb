"""Receives the lines of an access log over UDP, as a syslog server does: `bench/harness/log_sink.py`.

Prints their number when it is stopped, as proof that they were sent.
"""

import signal
import socket

ADDRESS = ("127.0.0.1", 21007)
LINE_BYTES_MAX = 1 << 16


def main():
    def stop(_signal, _frame):
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    lines = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(ADDRESS)
        try:
            while receiver.recv(LINE_BYTES_MAX):
                lines += 1
        finally:
            print(lines, flush=True)


if __name__ == "__main__":
    main()
