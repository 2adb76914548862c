// Command etcd is the upstream etcd server, built from its published module:
// upstream's own main package is in a module that the module proxy does not
// install by version, because its go.mod has replace directives.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
