package validation

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expressionCheck compiles the expressions of a policy.
type expressionCheck struct {
	compiler *plugincel.CompositedCompiler
	options  plugincel.OptionalVariableDeclarations
	errs     field.ErrorList
}

// newExpressionCheck has compiled what all policies have: variables, which other
// expressions may use, and conditions.
func newExpressionCheck(params *admissionregistrationv1.ParamKind, variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition) (*expressionCheck, *field.Error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, field.InternalError(specPath, fmt.Errorf("prepare expressions: %w", err))
	}
	c := &expressionCheck{compiler: compiler, options: plugincel.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true}}
	for i := range variables {
		v := &validating.Variable{Name: variables[i].Name, Expression: variables[i].Expression}
		c.note(specPath.Child("variables").Index(i).Child("expression"), v.Expression, compiler.CompileAndStoreVariable(v, c.options, environment.NewExpressions))
	}
	for i := range conditions {
		c.compile(specPath.Child("matchConditions").Index(i).Child("expression"), (*matchconditions.MatchCondition)(&conditions[i]), c.options)
	}
	return c, nil
}

func (c *expressionCheck) compile(at *field.Path, e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations) {
	c.note(at, e.GetExpression(), c.compiler.CompileCELExpression(e, options, environment.NewExpressions))
}

func (c *expressionCheck) note(at *field.Path, expression string, result plugincel.CompilationResult) {
	if result.Error != nil {
		c.errs = append(c.errs, field.Invalid(at, expression, result.Error.Detail))
	}
}
