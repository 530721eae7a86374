// A Kafka cluster that is not Kafka: franz-go's own, in one process, for the tests beside it.
//
// It prints the addresses of its brokers as JSON and obeys one command a line, each answered by
// a line of JSON: "topic NAME PARTITIONS" makes a topic, "trouble SEED" begins to move leaders and
// to fail fetches, "calm" ends that and says what it did. It ends with its standard input, so a
// killed test leaves none behind.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const shuffleEvery = 150 * time.Millisecond

// Codes after which a client has to ask again, here or elsewhere.
var retriable = []int16{-1, 3, 5, 6, 7, 9, 13, 56, 74, 75, 78, 100, 103}

type trouble struct {
	mu      sync.Mutex
	random  *rand.Rand
	failed  map[string]int
	fetches int
}

func (t *trouble) onFetch(request kmsg.Request) (kmsg.Response, error, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.random == nil {
		return nil, nil, false
	}
	t.fetches++
	if t.random.Intn(3) > 0 {
		return nil, nil, false
	}
	code := retriable[t.random.Intn(len(retriable))]
	switch t.random.Intn(4) {
	case 0:
		t.failed["cut"]++
		return nil, errors.New("the connection is cut"), true
	case 1:
		code = -1
	}
	t.failed[fmt.Sprint(code)]++
	return refused(request.(*kmsg.FetchRequest), code), nil, true
}

func (t *trouble) begin(seed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.random = rand.New(rand.NewSource(seed))
	t.failed, t.fetches = map[string]int{}, 0
}

func (t *trouble) end() map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.random = nil
	return map[string]any{"fetches": t.fetches, "failed": t.failed}
}

func refused(request *kmsg.FetchRequest, code int16) kmsg.Response {
	answer := request.ResponseKind().(*kmsg.FetchResponse)
	for _, topic := range request.Topics {
		one := kmsg.NewFetchResponseTopic()
		one.Topic, one.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			part := kmsg.NewFetchResponseTopicPartition()
			part.Partition, part.ErrorCode, part.HighWatermark = partition.Partition, code, -1
			one.Partitions = append(one.Partitions, part)
		}
		answer.Topics = append(answer.Topics, one)
	}
	return answer
}

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	t := &trouble{failed: map[string]int{}}
	cluster.ControlKey(1, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return t.onFetch(request)
	})
	go func() {
		for range time.Tick(shuffleEvery) {
			t.mu.Lock()
			isOn := t.random != nil
			t.mu.Unlock()
			if isOn {
				cluster.ShufflePartitionLeaders()
			}
		}
	}()
	say(cluster.ListenAddrs())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "topic":
			say(fmt.Sprint(cluster.CreateTopic(words[1], int32(number(words[2])), nil)))
		case "trouble":
			t.begin(number(words[1]))
			say("trouble")
		case "calm":
			say(t.end())
		}
	}
}

func number(word string) int64 {
	found, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return found
}

func say(what any) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
