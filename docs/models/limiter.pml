/* The limiter's word and its queue (warden/limiter/state.go, acquire.go, serve.go, park.go), each atomic step one step here.
 *
 * 3 goroutines. Each takes a place or waits, and ends its task; goroutine 1 may be canceled while it waits, at any moment. Before
 * or after its task goroutine 0 puts another target in place: 0, and then 1. With OWNED the places belong to somebody else as well, who
 * has one (Config.Slots), and goroutine 2 is another borrower of it that wakes the limiter when it gives it back.
 *
 * Checked: a place is taken only while fewer run than the target, and with OWNED never more than there are; each start is ended
 * once; nobody is left standing or waiting (an invalid end state); at the end nobody runs, nobody waits, and the flag is down.
 *
 * Left out: priorities, deadlines, shedding, eviction, the bound of the queue, Close, and permits (a seat's compare-and-swap).
 *
 * BROKEN is one of three faults, each of which the check must find: 1 does not look again after the flag went up, 2 gives a
 * place back without looking at the flag, 3 forgets that somebody who came while the owner was asked found no place left to ask with (needs OWNED). */

#ifndef TARGET
#define TARGET 1
#endif
#ifndef OWNED
#define OWNED 0
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

#define N 3
#define NOBODY N
#define word (running + 4 * target + 16 * queued) /* what a compare-and-swap compares; the number of the ruling is left out */

/* The word. Its parts change together, so each atomic step may read and write all of them. */
byte running;
byte target = TARGET;
bool queued;

bool locked;
byte line[N] = NOBODY; /* the queue, the oldest first */
byte waiting;
bool inQueue[N];
bool ready[N];
byte asking;
bool again;

byte free = 1; /* places of the owner */

byte inFlight; /* known from outside */
byte ended;

inline lock() { atomic { !locked -> locked = true } }
inline unlock() { locked = false }

inline push(p_) {
	line[waiting] = p_;
	waiting++;
	inQueue[p_] = true
}

/* takeOut, in one step: all of it is under the mutex but for the flag, whose fall is the step that others can see. */
inline takeOut(p_) {
	atomic {
		k = 0;
		do
		:: line[k] == p_ -> break
		:: else -> k++
		od;
		do
		:: k + 1 < waiting -> line[k] = line[k + 1]; k++
		:: else -> break
		od;
		waiting--;
		line[waiting] = NOBODY;
		inQueue[p_] = false;
		k = 0;
		if
		:: waiting == 0 -> queued = false
		:: else
		fi
	}
}

/* takePlace, under the mutex. The load and the compare-and-swap are one step here: it loops until nothing came between. */
inline takePlace() {
	atomic {
		if
		:: running < target -> running++; ok = true
		:: else -> ok = false
		fi
	}
}

inline leavePlace() { atomic { assert(running > 0); running-- } }

inline tryTake() {
	atomic {
		if
		:: free > 0 -> free--; ok = true
		:: else -> ok = false
		fi
	}
}

inline serve() {
	do
	:: waiting == 0 -> break
	:: else ->
		takePlace();
		if
		:: !ok ->
#if BROKEN != 3
			again = (asking > 0);
#endif
			break
		:: else
		fi;
#if OWNED
		asking++;
		again = false;
		unlock();
		tryTake();
		lock();
		asking--;
		if
		:: !ok ->
			leavePlace();
			if
			:: !again -> break
			:: else
			fi
		:: else ->
#else
		if
		:: true ->
#endif
			if
			:: running <= target && waiting > 0 ->
				next = line[0];
				takeOut(next);
				ready[next] = true;
				next = 0
			:: else ->
				leavePlace();
#if OWNED
				unlock();
				free++;
				lock()
#endif
			fi
		fi
	od
}

/* exit */
inline exit() {
	do
	:: atomic { seen = word; flag = queued }
		if
#if BROKEN != 2
		:: flag ->
			lock();
			leavePlace();
			serve();
			unlock();
			break
		:: else ->
#else
		:: true ->
#endif
			atomic {
				if
				:: word == seen -> assert(running > 0); running--; break
				:: else
				fi
			}
		fi
	od
}

inline wake() {
	if
	:: queued -> lock(); serve(); unlock()
	:: else
	fi
}

inline apply(t_) {
	lock();
	atomic { target = t_ }
	serve();
	unlock()
}

/* start, then join and park: in says whether there is a place. */
inline acquire() {
	in = false;
	do
	:: atomic { seen = word; ok = (!queued && running < target) }
		if
		:: !ok -> break
		:: else ->
			atomic {
				if
				:: word == seen -> running++; in = true; break
				:: else
				fi
			}
		fi
	od;
#if OWNED
	if
	:: in ->
		tryTake();
		if
		:: !ok -> in = false; exit()
		:: else
		fi
	:: else
	fi;
#endif
	if
	:: in
	:: else ->
		lock();
#if !OWNED
		atomic { /* tryAgain: as takePlace, unless somebody waits */
			if
			:: !queued && running < target -> running++; in = true
			:: else
			fi
		}
#endif
		if
		:: in -> unlock()
		:: else ->
			push(me);
			atomic { queued = true }
#if BROKEN != 1
			serve();
#endif
			unlock();
			if
			:: atomic { ready[me] -> ready[me] = false }
				in = true
			:: cancels ->
				lock();
				if
				:: inQueue[me] -> takeOut(me); unlock()
				:: else -> /* a place was granted at that instant: it is given back */
					unlock();
					atomic { ready[me] -> ready[me] = false }
					giveBack()
				fi
			fi
		fi
	fi
}

inline giveBack() {
#if OWNED
	free++;
#endif
	exit()
}

proctype goroutine(byte me) {
	byte k, next, seen;
	bool ok, flag, in, applied, cancels;
	if
	:: me == 0 -> apply(0); apply(1)
	:: me == 0 -> applied = true
	:: me == 1 -> cancels = true
	:: me != 0
	fi;
	if
	:: OWNED && me == 2 -> /* somebody else, who needs no place of the limiter */
		tryTake();
		if
		:: ok -> free++; wake()
		:: else
		fi
	:: else ->
		acquire();
		if
		:: in ->
			atomic {
				inFlight++;
				assert(inFlight <= TARGET);
				assert(inFlight <= running);
				assert(!OWNED || inFlight <= 1)
			}
			inFlight--;
			giveBack()
		:: else
		fi
	fi;
	if
	:: me == 0 && applied -> apply(0); apply(1)
	:: else
	fi;
	atomic {
		ended++;
		if
		:: ended == N ->
			assert(running == 0);
			assert(waiting == 0 && !queued && asking == 0);
			assert(free == 1)
		:: else
		fi
	}
}

init {
	atomic {
		byte i;
		do
		:: i < N -> line[i] = NOBODY; i++
		:: else -> break
		od;
		run goroutine(0);
		run goroutine(1);
		run goroutine(2)
	}
}
