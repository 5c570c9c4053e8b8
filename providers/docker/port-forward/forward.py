# Forwards standard input and output to a TCP connection; arguments: a loopback address, a port.
import os, socket, sys, threading
try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
except OSError as error:
    sys.exit(error.strerror or str(error))
os.write(2, b"connected\n")
told = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
total = 0
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
    global total
    total += len(data)
    rest = memoryview(data)
    while rest:
        rest = rest[output.write(rest):]
try:
    copy(peer.recv, show)
except OSError:
    os._exit(1)
# sudo keeps standard output open until this program ends: the message tells where it ends.
os.write(told, b"ended %d\n" % total)
output.close()
os.close(told)
sender.join()
