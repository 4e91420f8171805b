// Command retryablehttp sends two requests with hashicorp/go-retryablehttp and its
// default retries.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/hashicorp/go-retryablehttp"
)

func main() {
	client := retryablehttp.NewClient()
	client.Logger = nil
	for range 2 {
		resp, err := client.Get(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.StatusCode)
	}
}
