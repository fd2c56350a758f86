// Package tables prints objects as the rows that kubectl users know.
package tables

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// convertor makes tables of one kind.
type convertor struct {
	columns []metav1.TableColumnDefinition
	row     func(runtime.Object) []any
}

// column is a column that is always shown; wide one that -o wide adds.
func column(name, typ string) metav1.TableColumnDefinition {
	c := metav1.TableColumnDefinition{Name: name, Type: typ, Description: name}
	if name == "Name" {
		c.Format = "name"
	}
	return c
}

func wide(name, typ string) metav1.TableColumnDefinition {
	c := column(name, typ)
	c.Priority = 1
	return c
}

// of returns a convertor for objects of type O.
func of[O runtime.Object](row func(O) []any, columns ...metav1.TableColumnDefinition) rest.TableConvertor {
	return &convertor{columns: columns, row: func(obj runtime.Object) []any { return row(obj.(O)) }}
}

// ConvertToTable implements rest.TableConvertor.
func (c *convertor) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	add := func(o runtime.Object) error {
		cells := c.row(o)
		if len(cells) != len(c.columns) {
			return fmt.Errorf("print %T: %d cells for %d columns", o, len(cells), len(c.columns))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: o}})
		return nil
	}
	var err error
	if meta.IsListType(obj) {
		err = meta.EachListItem(obj, add)
	} else {
		err = add(obj)
	}
	if err != nil {
		return nil, err
	}
	if list, listErr := meta.ListAccessor(obj); listErr == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, singleErr := meta.CommonAccessor(obj); singleErr == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = c.columns
	}
	return table, nil
}

// age is the time since an object was made, as kubectl prints it.
func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// or returns s, or what stands for nothing.
func or(s, nothing string) string {
	if s == "" {
		return nothing
	}
	return s
}
