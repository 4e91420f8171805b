package scan_test

import (
	"testing"

	"github.com/dianalimiter/diana/internal/usage/scan"
)

func TestEndsOfStreams(t *testing.T) {
	for body, want := range map[string][2]any{
		"data: {}\n\n":                 {false, 1},
		"data: {}\n\ndata: [DONE]\n\n": {true, 1},
		"data: [DONE]":                 {true, 0},
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n": {true, 0},
		"event: response.completed\r\ndata: {}\r\n\r\n":              {true, 0},
		"event: response.completed\ndata: {":                         {true, 0},
		"event: message_stopped\ndata: {}\n\n":                       {false, 1},
		"event: message_stop\n\n":                                    {false, 0},
		"data: \"[DONE]\"\n\n: [DONE]\n\ndata: [DONE] \n\n":          {true, 1},
		"data: [DONE]x\n\n":                                          {false, 1},
		"data: {\"type\":\"response.failed\"}\n\n":                   {true, 0},
		"data: {\"type\":\"speech.audio.done\"}\n\n":                 {true, 0},
		"event: conversation.response.done\ndata: {}\n\n":            {true, 0},
		"event: conversation.response.error\ndata: {}\n\n":           {true, 0},
		"event: transcription.done\ndata: {}\n\n":                    {true, 0},
		"data: {\"event_type\":\"interaction.complete\"}\n\n":        {true, 0},
		"data: {\"delta\":{\"type\":\"message_stop\"}}\n\n":          {false, 1},
		"data: {\"type\":\"text\",\"text\":\"message_stop\"}\n\n":    {false, 1},
		"data: {\"done\":false}\n\ndata: {\"done\":true}\n\n":        {true, 1},
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\ndata: {\"usageMetadata\":{\"promptTokenCount\":1}}\n\n": {false, 2},
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":1}}\n\n":            {true, 0},
		"event: message_start\ndata: {}\n\nevent: message_delta\ndata: 1\n\n":                                            {false, 2},
	} {
		for _, cut := range []func() bool{whole, bytewise} {
			got, s := scanned(t, scan.SSE, []byte(body), cut, "a")
			s.End()
			if s.Ended() != want[0] || got.texts != want[1] {
				t.Errorf("%q: ended %v, %d events, want %v", body, s.Ended(), got.texts, want)
			}
		}
	}
}
