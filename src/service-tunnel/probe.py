# Runs in a pod's network namespace; src/service-tunnel/firewall-probe.ts describes arguments and output.
import socket, sys
tcp, *udp = [(host, int(port)) for host, _, port in (text.partition(":") for text in sys.argv[1:])]
PROBE = b"graftlet service tunnel probe"
def attempt(protocol, works):
    try: print(protocol, "open" if works() else "blocked", flush=True)
    except OSError: print(protocol, "blocked", flush=True)
def connects():
    socket.create_connection(tcp, 3).close()
    return True
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
try:
    if udp: s.connect(udp[0]); s.send(PROBE)
except OSError: pass
attempt("tcp", connects)
if udp: attempt("udp", lambda: s.recv(64) == PROBE)
