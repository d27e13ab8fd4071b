// SPDX-License-Identifier: Apache-2.0

// Leasectl lists, shows, replays, parks and discards dead letters, the records that dispatchers gave up, on PostgreSQL, JetStream
// and Kafka, and has a group adopt a log that was promoted. `leasectl -h` says how, and docs/dead-letters.md begins with an incident.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

// What the program ends with.
const (
	exitFailed  = 1 // the engine, or a letter that could not be replayed
	exitUsage   = 2
	exitNotDead = 3
)

const usage = `Usage: leasectl COMMAND ENGINE [flags] [ID]

Records that a dispatcher gave up are dead letters. An ID is partition@offset, as list prints it.

Commands:
  list              the letters that wait, by partition and offset
  show ID           one of them, with what it carries
  replay ID         append its record to its source once more; then the letter is gone
  replay -all       so with every letter that is not parked, those of a key in order; a key stops at
                    the first that fails. With -partition, -key or -limit, only those letters
  park ID           keep it out of replay -all (-note says why)
  unpark ID         undo that
  discard ID        drop it for good

  adopt             go on, where partitions are Stalled (rewound), in the log that is there now: a
                    promoted mirror, a restored table. With -partition, only there. It shows what it
                    found and asks

Engine, one of:
  -postgres URL     a database with leasepg's schema. To replay, -outbox names the outbox that the
                    records are from, or -append says how one gets into a table of your own: an
                    INSERT with @partition, @key, @payload and @headers (JSON). To adopt, it has
                    ledgers of a log elsewhere
  -nats URL         JetStream; -bucket has the letters, -creds names a file with credentials. To
                    adopt, -bucket has the group, or ledgers of a log elsewhere; -stream is the log
  -kafka BROKERS    host:port,...; -topic has the letters. To adopt, -group has its ledgers in
                    memory; stop its members first

Exit code: 0 done; 1 the engine failed, or letters are left; 2 wrong usage; 3 no such letter (any more).

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	command, id string

	postgres, outbox, appendSQL string
	nats, creds, bucket, stream string
	kafka, topic, group         string

	filter         deadletter.Filter
	all, yes, json bool
	note           string
}

// run is the program. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	o, err := parse(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, "leasectl:", plain(err.Error()))
		return exitUsage
	}
	e, end, err := o.open(ctx)
	if err == nil {
		defer end()
		w := bufio.NewWriter(out)
		err = errors.Join(o.do(ctx, e, bufio.NewReader(in), w), w.Flush())
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, deadletter.ErrNotDead):
		fmt.Fprintln(errs, "leasectl:", plain(err.Error()))
		return exitNotDead
	}
	fmt.Fprintln(errs, "leasectl:", plain(err.Error()))
	return exitFailed
}

// parse reads the command line: flags may come before and after the ID.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("leasectl", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is said once, by run
	flags.StringVar(&o.postgres, "postgres", "", "`URL` of a PostgreSQL database; a password may come from PGPASSWORD or ~/.pgpass instead")
	flags.StringVar(&o.outbox, "outbox", "", "`name` of the outbox that records go back into, for replay on PostgreSQL")
	flags.StringVar(&o.appendSQL, "append", "", "`INSERT` that appends a record to another table, for replay on PostgreSQL")
	flags.StringVar(&o.nats, "nats", "", "`URL` of a NATS server")
	flags.StringVar(&o.creds, "creds", "", "`file` with NATS credentials")
	flags.StringVar(&o.bucket, "bucket", "dead-letters", "`name` of the key-value bucket with the letters")
	flags.StringVar(&o.kafka, "kafka", "", "`brokers`, host:port,...")
	flags.StringVar(&o.topic, "topic", "dead-letters", "`name` of the topic with the letters")
	flags.StringVar(&o.stream, "stream", "", "`name` of the stream that a group reads, for adopt on NATS")
	flags.StringVar(&o.group, "group", "", "`name` of the consumer group, for adopt on Kafka")
	flags.StringVar(&o.filter.Partition, "partition", "", "only letters of this `partition`")
	flags.StringVar(&o.filter.Domain, "key", "", "only letters of this `key`")
	flags.IntVar(&o.filter.Limit, "limit", 0, "at most so `many` letters, the first; 0: all")
	flags.BoolVar(&o.all, "all", false, "replay every letter that is not parked")
	flags.BoolVar(&o.yes, "yes", false, "do not ask before replay -all and discard")
	flags.BoolVar(&o.json, "json", false, "print JSON, an object a line")
	flags.StringVar(&o.note, "note", "", "why a letter is parked, in a few `words`")

	// Flags are looked for among the words, since those who type an ID in the middle of the night put it anywhere.
	var words []string
	help := func() {
		flags.SetOutput(out)
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				help()
			}
			return o, err
		}
		if args = flags.Args(); len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	if len(words) == 0 {
		help()
		return o, errors.New("which command?")
	}
	engineOf := map[string]string{"outbox": "postgres", "append": "postgres", "creds": "nats", "bucket": "nats", "stream": "nats", "topic": "kafka",
		"group": "kafka"}
	var foreign error
	flags.Visit(func(f *flag.Flag) {
		if of := flags.Lookup(engineOf[f.Name]); of != nil && of.Value.String() == "" {
			foreign = fmt.Errorf("-%s is for -%s", f.Name, of.Name)
		}
	})
	if o.command = words[0]; foreign != nil {
		return o, foreign
	}
	return o.checked(words[1:])
}

// checked rejects flags that do not go together, and takes the ID.
func (o options) checked(ids []string) (options, error) {
	single := false
	switch o.command {
	case "list", "adopt":
	case "replay":
		single = !o.all
	case "show", "park", "unpark", "discard":
		single = true
	default:
		return o, fmt.Errorf("%q is no command: list, show, replay, park, unpark, discard or adopt", o.command)
	}
	switch {
	case single && len(ids) != 1 && o.command == "replay":
		return o, errors.New("replay needs the ID of one letter, or -all")
	case single && len(ids) != 1:
		return o, fmt.Errorf("%s needs the ID of one letter", o.command)
	case !single && len(ids) > 0:
		return o, fmt.Errorf("%s takes no ID here: %q", o.command, ids)
	case single && o.filter != deadletter.Filter{}:
		return o, fmt.Errorf("%s is about one letter: -partition, -key and -limit say nothing there", o.command)
	case o.all && o.command != "replay":
		return o, fmt.Errorf("-all is for replay, not for %s", o.command)
	case o.note != "" && o.command != "park":
		return o, fmt.Errorf("-note is for park, not for %s", o.command)
	case o.stream+o.group != "" && o.command != "adopt":
		return o, fmt.Errorf("-stream and -group are for adopt, not for %s", o.command)
	case o.command == "adopt" && o.filter != deadletter.Filter{Partition: o.filter.Partition}:
		return o, errors.New("adopt is about partitions: -key and -limit say nothing there")
	case o.command == "adopt" && o.kafka != "" && o.group == "":
		return o, errors.New("adopt on Kafka needs -group, the consumer group")
	}
	engines := 0
	for _, at := range []string{o.postgres, o.nats, o.kafka} {
		if at != "" {
			engines++
		}
	}
	if engines != 1 {
		return o, errors.New("one of -postgres, -nats and -kafka says where the letters are")
	}
	if o.command == "replay" && o.postgres != "" && (o.outbox == "") == (o.appendSQL == "") {
		return o, errors.New("replay on PostgreSQL needs one of -outbox, the outbox that records go back into, and -append, the INSERT into another table")
	}
	if single {
		o.id = ids[0]
		if _, err := deadletter.ParseID(o.id); err != nil {
			return o, err
		}
	}
	return o, dlq.Check(o.filter)
}

// do carries the command out.
func (o options) do(ctx context.Context, e engine, in *bufio.Reader, out *bufio.Writer) error {
	if o.command == "adopt" {
		all, err := e.bindings(ctx)
		if err != nil {
			return err
		}
		return o.adopt(ctx, all, in, out)
	}
	desk, err := e.letters(ctx)
	if err != nil {
		return err
	}
	var id deadletter.ID
	if o.id != "" {
		if id, err = deadletter.ParseID(o.id); err != nil {
			return err
		}
	}
	switch o.command {
	case "list":
		return o.list(ctx, desk, out)
	case "show":
		letter, err := desk.Get(ctx, id)
		if err != nil {
			return err
		}
		return o.show(out, letter)
	case "park":
		return o.done(out, "parked", desk.Park(ctx, id, o.note))
	case "unpark":
		return o.done(out, "unparked", desk.Unpark(ctx, id))
	case "discard":
		if _, err := desk.Get(ctx, id); err != nil {
			return err
		}
		if err := o.ask(in, out, "Discard "+plain(o.id)+" for good?"); err != nil {
			return err
		}
		return o.done(out, "discarded", desk.Discard(ctx, id))
	}
	if !o.all {
		return o.done(out, "replayed", desk.Replay(ctx, id))
	}
	if err := o.askAll(ctx, desk, in, out); err != nil {
		return err
	}
	report, err := deadletter.ReplayAll(ctx, desk, o.filter)
	return errors.Join(o.report(out, report), err)
}

// errNotAsked is the answer of those who cannot answer.
var errNotAsked = errors.New("nothing was done: answer yes, or say -yes")

// ask goes on when the answer is yes.
func (o options) ask(in *bufio.Reader, out *bufio.Writer, question string) error {
	if o.yes {
		return nil
	}
	fmt.Fprint(out, question, " [y/N] ")
	if err := out.Flush(); err != nil {
		return err
	}
	answer, _ := in.ReadString('\n') // the end of the input is a no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotAsked
}

func (o options) askAll(ctx context.Context, desk deadletter.Store, in *bufio.Reader, out *bufio.Writer) error {
	if o.yes {
		return nil
	}
	letters, parked := 0, 0
	for letter, err := range desk.List(ctx, o.filter) {
		switch {
		case err != nil:
			return err
		case letter.Parked:
			parked++
		default:
			letters++
		}
	}
	return o.ask(in, out, fmt.Sprintf("Replay %d letters (%d parked ones stay)?", letters, parked))
}
