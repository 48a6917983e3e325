// Append to a log, read it and follow it over Arrow Flight: go run . HOST:PORT LOG
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		check(fmt.Errorf("expected HOST:PORT and the name of a log, got %d arguments", len(os.Args)-1))
	}
	address, log, ctx := os.Args[1], os.Args[2], context.Background()
	client, err := flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer client.Close()

	schema := arrow.NewSchema([]arrow.Field{{Name: "value", Type: arrow.BinaryTypes.Binary}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	builder.Field(0).(*array.BinaryBuilder).AppendStringValues([]string{"from", "Go"}, nil)
	put, err := client.DoPut(ctx)
	check(err)
	writer := flight.NewRecordWriter(put, ipc.WithSchema(schema))
	writer.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{log}})
	check(writer.Write(builder.NewRecord()))
	answer, err := put.Recv()
	check(err)
	fmt.Println(string(answer.AppMetadata))
	check(writer.Close())
	check(put.CloseSend())

	for _, ticket := range []string{`{"log": "` + log + `"}`, `{"log": "` + log + `", "follow": true}`} {
		stream, err := client.DoGet(ctx, &flight.Ticket{Ticket: []byte(ticket)})
		check(err)
		reader, err := flight.NewRecordReader(stream)
		check(err)
		record, err := reader.Read()
		if err == io.EOF {
			continue
		}
		check(err)
		values := record.Column(record.Schema().FieldIndices("value")[0]).(*array.Binary)
		fmt.Println(record.NumRows(), string(values.Value(int(record.NumRows())-1)))
	}
}
