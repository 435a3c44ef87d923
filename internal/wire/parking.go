package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// A parking holds the modern calls that wait for their client to come back with
// answers. Their number and their time are bounded.
type parking struct {
	byOne int // that one client may have

	mu     sync.Mutex
	closed bool
	jobs   map[parkID]*parkedJob
	owners map[string]int
}

type parkID [16]byte

type parkedJob struct {
	*job
	owner string
	timer *time.Timer
}

const (
	parkTime  = 10 * time.Minute // then a parked call is cancelled
	maxParked = 4096
)

func newParking(byOne int) *parking {
	return &parking{byOne: byOne, jobs: map[parkID]*parkedJob{}, owners: map[string]int{}}
}

// errBadState is the answer to every requestState that does not fit, whatever
// the reason: one answer tells nobody which part was right.
func errBadState() *Error {
	return Errorf(CodeInvalidParams, "requestState is unknown, expired, used or not for this request; start the request anew")
}

// park sets a call aside and returns the result that asks its client. It
// reports false if there is no room; those who asked have been told so.
func (s *Server) park(j *job) (json.RawMessage, bool) {
	owner := j.req.Session.owner
	t := ticket{
		principal: sha256.Sum256([]byte(owner)),
		request:   requestDigest(j.req.Method, j.req.Params),
		expires:   time.Now().Add(parkTime),
	}
	rand.Read(t.park[:])
	if !s.parked.add(t.park, owner, j) {
		j.refuseAsks()
		return nil, false
	}
	j.heardBy(nil, nil)
	return j.inputRequired(s.seal.seal(t)), true
}

// unpark finds the call that a request resumes. It returns nil if the request is
// a new one: a requestState that is not ours is for the handler, which may have
// its own.
func (s *Server) unpark(sess *Session, m Message) (*job, *Error) {
	if !MayAskBack(m.Method) {
		return nil, nil
	}
	state, _ := StringMember(m.Params, "requestState")
	if !strings.HasPrefix(state, sealPrefix) {
		return nil, nil
	}
	t, ok := s.seal.open(state)
	if !ok || t.principal != sha256.Sum256([]byte(sess.owner)) ||
		t.request != requestDigest(m.Method, m.Params) || !time.Now().Before(t.expires) {
		return nil, errBadState()
	}
	responses, _ := Member(m.Params, "inputResponses")
	return s.parked.take(t.park, responses)
}

func (p *parking) add(id parkID, owner string, j *job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.jobs) >= maxParked || p.owners[owner] >= p.byOne {
		return false
	}
	p.owners[owner]++
	p.jobs[id] = &parkedJob{job: j, owner: owner, timer: time.AfterFunc(parkTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if parked := p.jobs[id]; parked != nil {
			p.remove(id, parked)
			j.cancel(errGone)
		}
	})}
	return true
}

// take takes out the call that the answers are for. If there is something wrong
// with them it stays, for the client to put it right.
func (p *parking) take(id parkID, responses json.RawMessage) (*job, *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parked := p.jobs[id]
	if parked == nil {
		return nil, errBadState()
	}
	if err := parked.check(responses); err != nil {
		return nil, err
	}
	p.remove(id, parked)
	return parked.job, nil
}

func (p *parking) remove(id parkID, parked *parkedJob) {
	parked.timer.Stop()
	delete(p.jobs, id)
	if p.owners[parked.owner]--; p.owners[parked.owner] == 0 {
		delete(p.owners, parked.owner)
	}
}

// drop cancels the parked calls of one owner.
func (p *parking) drop(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, parked := range p.jobs {
		if parked.owner == owner {
			p.remove(id, parked)
			parked.cancel(errGone)
		}
	}
}

// close cancels all of them and takes no more.
func (p *parking) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for id, parked := range p.jobs {
		p.remove(id, parked)
		parked.cancel(ErrClosed)
	}
}

// requestDigest tells requests apart by what they ask for: the method and the
// params without what a retry changes. It does not depend on the order of
// members, nor on how strings are escaped, because a client may write its
// request anew.
func requestDigest(method string, params json.RawMessage) [sha256.Size]byte {
	for _, name := range []string{"_meta", "inputResponses", "requestState"} {
		params = DeleteMember(params, name)
	}
	h := sha256.New()
	h.Write(AppendString(nil, method))
	decoder := json.NewDecoder(strings.NewReader(string(params)))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) == nil {
		canonical, _ := json.Marshal(value) // sorts members
		h.Write(canonical)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
