package wire

import "container/list"

// A fairQueue holds what waits for its turn, by who sent it. Senders take turns,
// so that one who sends many delays another by one turn, not by all of them.
type fairQueue[T any] struct {
	senders map[string]*senderQueue[T] // that have something waiting
	turns   list.List                  // of those, the next first
	size    int
}

type senderQueue[T any] struct {
	sender string
	items  list.List // of T
	turn   *list.Element
}

// A queuePlace is where something waits.
type queuePlace[T any] struct {
	of   *senderQueue[T]
	item *list.Element
}

// full reports whether a sender has to be turned away where so many may wait.
// There is as much room again for those who have nothing waiting.
func (q *fairQueue[T]) full(sender []byte, most int) bool {
	return q.size >= most && (q.size >= 2*most || q.senders[string(sender)] != nil)
}

func (q *fairQueue[T]) push(sender []byte, item T) *queuePlace[T] {
	of := q.senders[string(sender)]
	if of == nil {
		if q.senders == nil {
			q.senders = map[string]*senderQueue[T]{}
		}
		of = &senderQueue[T]{sender: string(sender)}
		of.turn = q.turns.PushBack(of)
		q.senders[of.sender] = of
	}
	q.size++
	return &queuePlace[T]{of, of.items.PushBack(item)}
}

// pop takes out what is next; there is something.
func (q *fairQueue[T]) pop() T {
	of := q.turns.Front().Value.(*senderQueue[T])
	q.turns.MoveToBack(of.turn)
	return q.remove(&queuePlace[T]{of, of.items.Front()})
}

// remove takes out what waits at a place.
func (q *fairQueue[T]) remove(p *queuePlace[T]) T {
	item := p.of.items.Remove(p.item).(T)
	if q.size--; p.of.items.Len() == 0 {
		q.turns.Remove(p.of.turn)
		delete(q.senders, p.of.sender)
	}
	return item
}
