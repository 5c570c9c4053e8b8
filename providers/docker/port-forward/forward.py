# Forwards standard input and output to a TCP connection; arguments: a loopback address, a port.
import os, socket, sys, threading
try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
except OSError as error:
    sys.exit(error.strerror or str(error))
os.write(2, b"connected\n")
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
def copy(read, write):
    data = read(65536)
    while data:
        write(data)
        data = read(65536)
def send():
    try:
        copy(lambda size: os.read(0, size), peer.sendall)
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass
sender = threading.Thread(target=send)
sender.start()
output = os.fdopen(1, "wb", 0)
def show(data):
    rest = memoryview(data)
    while rest:
        rest = rest[output.write(rest):]
try:
    copy(peer.recv, show)
except OSError:
    os._exit(1)
output.close()
sender.join()
