// Prints the user whose rights it has. Its file is root's and set-user-ID, so that a process that may gain rights has root's.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Printf("Effective uid: %d\n", os.Geteuid())
}
