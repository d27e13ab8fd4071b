/* The gate's credits (admission/credits.go): taking, giving back, gathering, spreading, each atomic step one step here.
 *
 * LIMIT credits, SLOTS slots that may hold one each, and a name for each of the 3 goroutines, which a central admission
 * takes its identity from. Each goroutine acquires ROUNDS times and releases, then releases again, which must count for
 * nothing; goroutine 0 leaves a copy of each permit that another may release at any moment.
 *
 * Checked: never more than LIMIT are in flight; nobody is refused unless at one instant of its call LIMIT were; a release
 * ends the admission that it names and no other, once; at the end all credits are there; nobody is left standing.
 *
 * Left out: Close, Drain, counters, the hint home (any slot may be tried first by anybody), identities from the pool, and the
 * number of releases before credits are spread again: any release that could be the one may be.
 *
 * BROKEN is one of three faults, each of which the check must find: 1 refuses without gathering, 2 counts a credit that is
 * out as gathered, 3 does not compare generations. */

#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

#define N 3
#define ALL (SLOTS + N)

/* A slot's word: its generation above, its state in the two low bits. */
#define withdrawn 0
#define available 1
#define held 2
#define recalled 3
#define state(w) ((w) % 4)
#define generation(w) ((w) / 4)
#define take 1     /* held - available */
#define release 3  /* next generation, available - held */
#define home 1     /* next generation, withdrawn - recalled */
#define identify 3 /* recalled - withdrawn */

/* The central word: how many credits lie in it, and a flag. */
#define spread 16
#define credits(c) ((c) % 16)

byte slot[ALL];
byte central;
bool locked;

/* What is known from outside. */
byte inFlight;
bool reached[N];    /* LIMIT were in flight at an instant of this goroutine's call */
byte who[ALL];   /* the admission that a slot identifies */
byte admissions;
byte copyOf[3];  /* slot, word and number of a permit of goroutine 0 */
bool copied;
byte ended;

inline admitted(s_) {
	inFlight++;
	assert(inFlight <= LIMIT);
	if
	:: inFlight == LIMIT -> reached[0] = true; reached[1] = true; reached[2] = true
	:: else
	fi
}

inline named(s_) {
	admissions++;
	who[s_] = admissions;
	mine = admissions
}

inline lock() { atomic { !locked -> locked = true } }
inline unlock() { locked = false }

/* gather, under the mutex. */
inline gather() {
	if
	:: (central / spread) == 1 ->
		found = 0;
		i = 0;
		do
		:: i < SLOTS ->
			w = slot[i];
			if
			:: state(w) == available ->
				atomic {
					if
					:: slot[i] == w -> slot[i] = w - 1; found++; i++
					:: else
					fi
				}
			:: state(w) == held ->
				atomic {
					if
					:: slot[i] == w ->
						slot[i] = w + 1;
#if BROKEN == 2
						found++;
#endif
						i++
					:: else
					fi
				}
			:: else -> i++
			fi
		:: else -> break
		od;
		central = central + found - spread
	:: else
	fi
}

/* spreadOut, under the mutex. */
inline spreadOut() {
	if
	:: (central / spread) == 0 ->
		central = central + spread;
		i = 0;
		do
		:: i < SLOTS ->
			w = slot[i];
			done = false;
			if
			:: state(w) == recalled ->
				atomic {
					if
					:: slot[i] == w -> slot[i] = w - 1; done = true
					:: else
					fi
				}
			:: else
			fi;
			do
			:: done -> break
			:: else ->
				c = central;
				if
				:: credits(c) == 0 -> break
				:: else ->
					atomic {
						if
						:: central == c -> central = c - 1; done = true
						:: else
						fi
					}
					if
					:: done -> slot[i] = slot[i] + 1
					:: else
					fi
				fi
			od;
			if
			:: done -> i++
			:: else -> break
			fi
		:: else -> break
		od
	:: else
	fi
}

/* giveBack of the admission that (s_, w_) names, whose number is n_; won says whether it was this call. */
inline giveBack(s_, w_, n_) {
	won = false;
	do
	:: won -> break
	:: else ->
		w = slot[s_];
		if
#if BROKEN == 3
		:: state(w) == withdrawn || state(w) == available -> break
#else
		:: generation(w) != generation(w_) -> break
#endif
		:: else ->
			if
			:: state(w) == held ->
				atomic {
					if
					:: slot[s_] == w ->
						assert(who[s_] == n_);
						slot[s_] = w + release;
						inFlight--;
						won = true
					:: else
					fi
				}
			:: else ->
				atomic {
					if
					:: slot[s_] == w ->
						assert(who[s_] == n_);
						slot[s_] = w + home;
						won = true
					:: else
					fi
				}
				if
				:: won ->
					atomic { central = central + 1; c = central; inFlight-- } /* a loop around a compare-and-swap: it takes effect once */
					if
					:: (c / spread) == 0 -> /* perhaps it has been calm for long enough */
						atomic {
							if
							:: !locked -> locked = true; done = true
							:: done = false
							fi
						}
						if
						:: done -> spreadOut(); unlock()
						:: else
						fi
					:: else
					fi
				:: else
				fi
			fi
		fi
	od
}

proctype goroutine(byte me) {
	byte round, i, w, c, found, s, word, mine;
	bool done, won, in;
	do
	:: round == ROUNDS -> break
	:: else ->
		round++;
		in = false;
		atomic { reached[me] = (inFlight == LIMIT) }
		/* admit */
		do
		:: in -> break
		:: else ->
			c = central;
			if
			:: (c / spread) == 1 ->
				i = 0;
				do
				:: in || i == SLOTS -> break
				:: else ->
					w = slot[i];
					if
					:: state(w) == available ->
						atomic {
							if
							:: slot[i] == w ->
								slot[i] = w + take;
								s = i; word = w + take; in = true;
								admitted(s);
								named(s)
							:: else
							fi
						}
					:: else
					fi;
					i++
				od
			:: else
			fi;
			if
			:: in
			:: else ->
				if
				:: credits(c) > 0 ->
					atomic {
						if
						:: central == c -> central = c - 1; in = true; admitted(0)
						:: else
						fi
					}
					if
					:: in ->
						i = SLOTS; /* name */
						do
						:: i < ALL ->
							w = slot[i];
							if
							:: state(w) == withdrawn ->
								atomic {
									if
									:: slot[i] == w ->
										slot[i] = w + identify;
										s = i; word = w + identify;
										named(s);
										break
									:: else -> i++
									fi
								}
							:: else -> i++
							fi
						:: else -> assert(false) /* with a name for each goroutine there is one */
						od
					:: else
					fi
#if BROKEN != 1
				:: credits(c) == 0 && (c / spread) == 1 ->
					lock();
					gather();
					unlock()
#endif
				:: else ->
					assert(reached[me]);
					break
				fi
			fi
		od;
		if
		:: in ->
			if
			:: me == 0 -> atomic { copyOf[0] = s; copyOf[1] = word; copyOf[2] = mine; copied = true }
			:: else
			fi;
			giveBack(s, word, mine);
			assert(won || me == 0); /* others' permits are nobody else's */
			giveBack(s, word, mine);
			assert(!won)
		:: else
		fi;
		if
		:: me != 0 && copied ->
			atomic { s = copyOf[0]; word = copyOf[1]; mine = copyOf[2] }
			giveBack(s, word, mine)
		:: true
		fi
	od;
	atomic {
		ended++;
		if
		:: ended == N ->
			found = credits(central);
			i = 0;
			do
			:: i < SLOTS ->
				assert(state(slot[i]) == withdrawn || state(slot[i]) == available);
				found = found + state(slot[i]);
				i++
			:: else -> break
			od;
			assert(inFlight == 0);
			assert(found == LIMIT)
		:: else
		fi
	}
}

init {
	atomic {
		/* Any of the two modes to begin with. */
		if
		:: central = LIMIT
		:: central = spread + (LIMIT - SLOTS);
			byte k = 0;
			do
			:: k < SLOTS -> slot[k] = available; k++
			:: else -> break
			od
		fi;
		run goroutine(0);
		run goroutine(1);
		run goroutine(2)
	}
}
