// Command openaigo asks a language model by the library openai-go, and prints the usage that it
// was told: of an answer, and, without another argument, of a stream. With one it says that it is
// ready, and asks after a line of its input.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	client := openai.NewClient(option.WithAPIKey("key"), option.WithBaseURL(os.Args[1]+"/v1"))
	ctx, ask := context.Background(), openai.ChatCompletionNewParams{
		Model: "small", MaxTokens: openai.Int(6), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two three four")},
	}
	if len(os.Args) > 2 {
		fmt.Fprintln(os.Stderr, "ready")
		_, _ = fmt.Scanln()
	}
	answer, err := client.Chat.Completions.New(ctx, ask)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Usage.TotalTokens)
	if len(os.Args) > 2 {
		return
	}
	ask.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(ctx, ask)
	for stream.Next() {
		if n := stream.Current().Usage.TotalTokens; n > 0 {
			fmt.Println(n)
		}
	}
	if err := stream.Err(); err != nil {
		log.Fatal(err)
	}
}
